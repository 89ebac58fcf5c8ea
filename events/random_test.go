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
	"pgregory.net/rapid"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

var (
	randomSeeds = flag.Int("events.seeds", fewer(150, 6), "histories of TestRandomHistories")
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
				r.checkRosters()
			}
			end()
			if count, _ := stored(server); count != emitted-dropped {
				t.Fatalf("emitted %d, dropped %d, stored %d: %s", emitted, dropped, count, brief(server.Events()))
			}
		})
	})
}

// checkRosters compares what the rosters count with what is in memory.
func (r *rig) checkRosters() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := 0
	for _, roster := range r.core.rosters {
		listed := 0
		for x := roster.own.first; x != nil; x = x.next {
			if x.owner.listed {
				listed++
			}
		}
		if listed != roster.listed {
			r.t.Fatalf("%d series are listed, counted %d", listed, roster.listed)
		}
		all += roster.own.n
	}
	if all != r.core.table.all {
		r.t.Fatalf("the sources have %d series, the table %d", all, r.core.table.all)
	}
}

func sum(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// world is the object of a series, with the version of its last write: a slow and obvious server.
type world struct {
	object  *found
	version int
}

// carry does a call and returns the verdict.
func (w *world) carry(s *state, c call) verdict {
	switch {
	case c.kind == callCreate && w.object != nil:
		return verdictConflict
	case c.kind != callCreate && w.object == nil:
		return verdictMissing
	case c.kind == callRead:
		return verdictOK
	case c.kind == callPatch && c.version != w.object.version:
		return verdictConflict
	}
	w.version++
	w.object = &found{count: c.count, begun: s.begun, last: c.last, state: c.state, loose: c.loose, version: string(rune(w.version))}
	return verdictOK
}

// TestSeriesAgainstEverything drives a series and another process with the same object through
// random occurrences, pauses, failures, lost answers, expiry and an end. The object must count
// every occurrence of both exactly once.
func TestSeriesAgainstEverything(t *testing.T) {
	p := Options{FinishAfter: 6 * time.Minute, Heartbeat: 30 * time.Minute}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		w := &world{}
		s := begin(now)
		total, acked, own := int64(1), int64(0), int64(1)
		expires := rapid.Bool().Draw(t, "expires") // an object that goes takes what the other process wrote with it
		send := func(s *state, fail string) {
			c := s.next(now, &p)
			if c.kind == callNone {
				return
			}
			v := verdictTrouble
			if fail != "before" {
				v = w.carry(s, c)
			}
			if fail == "after" {
				s.doubtful(c)
				return
			}
			switch v {
			case verdictOK:
				if c.kind != callRead {
					acked += s.done(written{call: c, version: w.object.version, now: now, jitter: 0.5}, &p)
				} else {
					acked += s.merge(*w.object, now)
				}
			case verdictMissing:
				s.becomeAbsent()
			case verdictConflict:
				s.becomeUnread()
			}
		}
		do := []string{"emit", "emit", "emit", "send", "send", "lost", "fail", "wait"}
		if expires {
			do = append(do, "expire")
		} else {
			do = append(do, "other")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom(do).Draw(t, "do") {
			case "emit":
				if s.occur(now, &p) {
					total, own = total+1, own+1
				}
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "s")) * time.Second)
			case "send":
				send(&s, "")
			case "lost":
				send(&s, "after")
			case "fail":
				send(&s, "before")
			case "expire":
				w.object = nil
			case "other": // one that rebases as this one does
				if w.object != nil && s.sent == 0 {
					n := int64(rapid.IntRange(1, 3).Draw(t, "n"))
					w.version++
					o := *w.object
					o.count, o.last, o.state, o.version = o.count+n, now, stateOngoing, string(rune(w.version))
					w.object = &o
					total += n
				}
			}
			now = now.Add(time.Millisecond)
		}
		s.becomeSuspended()
		for i := 0; s.owes(now); i++ {
			if send(&s, ""); i > 10 {
				t.Fatalf("it does not end: %+v", s)
			}
		}
		if w.object != nil && w.object.loose && w.object.count <= total { // a lost answer and another process at once
			return
		}
		if gone := expires && w.object == nil; !gone && (w.object == nil || w.object.count != total) {
			t.Fatalf("%d occurrences, stored %+v, state %+v", total, w.object, s)
		}
		if acked != own {
			t.Fatalf("%d own occurrences, %d acknowledged: %+v", own, acked, s)
		}
	})
}
