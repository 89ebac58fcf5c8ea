// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

var (
	randomSeeds = flag.Int("events.seeds", 150, "histories of TestRandomHistories")
	randomSeed  = flag.Uint64("events.seed", 0, "run this history only")
)

// TestRandomHistories drives whole recorders through random loads, outages, lost answers,
// evictions, pauses and restarts. In the end every occurrence is in exactly one stored count, or
// was dropped and counted.
func TestRandomHistories(t *testing.T) {
	if *randomSeed != 0 {
		randomHistory(t, *randomSeed)
		return
	}
	for seed := range uint64(*randomSeeds) {
		randomHistory(t, seed+1)
	}
}

func randomHistory(t *testing.T, seed uint64) {
	t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 42))
			server := eventstest.NewServer()
			server.SetTTL(1000 * time.Hour) // so that the sum in the end is of everything
			troubles := []error{
				nil, nil, nil, nil, nil, nil, errAway, status(429, metav1.StatusReasonTooManyRequests, 0), status(429, metav1.StatusReasonTooManyRequests, 2),
				status(500, metav1.StatusReasonInternalError, 0), status(503, metav1.StatusReasonServiceUnavailable, 0),
			}
			// Faults are drawn by the writers, of which there may be several: from a source of their own.
			faults := rand.New(rand.NewPCG(seed, 7))
			lock := make(chan struct{}, 1)
			draw := func(n int) int {
				lock <- struct{}{}
				defer func() { <-lock }()
				return faults.IntN(n)
			}
			var healthy atomic.Bool
			healthy.Store(true)
			server.SetFault(func(ctx context.Context, _ eventstest.Call) error {
				if healthy.Load() {
					return nil
				}
				if err := troubles[draw(len(troubles))]; err != nil {
					return err
				}
				return slowly(time.Duration(draw(2000))*time.Millisecond)(ctx, eventstest.Call{})
			})
			server.SetAfterFault(func(eventstest.Call) error {
				if !healthy.Load() && draw(4) == 0 {
					return errReset
				}
				return nil
			})
			change := func(o *Options) {
				o.Writers = 1 + rnd.IntN(3)
				o.MaxSeries = []int{2, 5, 100}[rnd.IntN(3)]
				o.MaxQueue = []int{4, 100}[rnd.IntN(2)]
				o.Burst = []int{-1, 3}[rnd.IntN(2)]
				o.BackoffMax = 20 * time.Second
				o.NoRoster = rnd.IntN(2) == 0
			}
			var emitted, dropped int64
			r := newRig(t, server, change)
			end := func() {
				healthy.Store(true)
				r.end(time.Hour)
				s := r.Stats()
				emitted += s.Emitted
				dropped += sum(s.Dropped)
				if s.Emitted != s.Acknowledged+s.Unsent+sum(s.Dropped) || s.Unsent != 0 {
					t.Fatalf("books: %+v", s)
				}
			}
			for range 20 + rnd.IntN(60) {
				switch rnd.IntN(12) {
				case 0:
					healthy.Store(!healthy.Load())
				case 1:
					pass(time.Duration(1+rnd.IntN(20)) * time.Minute)
				case 2:
					end()
					r = newRig(t, server, change)
				default:
					r.pod(fmt.Sprint("p", rnd.IntN(8)), 1+rnd.IntN(5))
					pass(time.Duration(rnd.IntN(90_000)) * time.Millisecond)
				}
			}
			end()
			if count, _ := stored(server); count != emitted-dropped {
				t.Fatalf("emitted %d, dropped %d, stored %d: %s", emitted, dropped, count, brief(server.Events()))
			}
		})
	})
}

func sum(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}
