// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// twin is one of several generators in a process, each with its cache, over a single runtime.
type twin struct {
	gen   *pleg.Generator[Status]
	cache *cache.Cache[Status]
	stop  func()
}

func newTwin(t *testing.T, r *toy, s settings) *twin {
	c := cache.New(func(uid cache.UID) *Status { return &Status{UID: uid} })
	l := newLedger(r.truth, s.workers, func(kind, format string, args ...any) { t.Errorf(kind+": "+format, args...) })
	l.doubt = func() time.Duration { return 0 }
	gen, err := pleg.New(configOf(&s, c, &boundary[Status]{ledger: l, source: r, stream: r}, nil, time.Now))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	done := make(chan error, 1)
	go func() { done <- gen.Run(ctx) }()
	return &twin{gen: gen, cache: c, stop: func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.atRest()
	}}
}

// TestDefect17InstancesDoNotKnowOfEachOther runs two generators in a process, an evented and a
// generic generator: both end in the cache of the runtime's state, and the end of either changes
// nothing for the other (invariants 7 and 8).
func TestDefect17InstancesDoNotKnowOfEachOther(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			s := defaultSettings()
			s.seed = seed
			r := newToy(NewTruth(), seed)
			r.torn = true
			listening := newTwin(t, r, s)
			s.generic = true
			polling := newTwin(t, r, s)
			check := func(when string, twins ...*twin) {
				t.Helper()
				time.Sleep(3 * time.Second)
				synctest.Wait()
				for i, w := range twins {
					for _, uid := range r.truth.UIDs() {
						status, err := w.cache.Get(uid)
						if what := r.truth.Differs(uid, status.Items); what != "" || err != nil {
							t.Errorf("seed %d, %s, twin %d: pod %s: %s, error %v", seed, when, i, uid, what, err)
						}
					}
				}
			}
			rng := rand.New(rand.NewPCG(seed, 5))
			change := func(n int) {
				for i := range 20 {
					pod, id := cache.UID(fmt.Sprintf("p%d", i%3)), fmt.Sprintf("%d-%d", n, i)
					_ = r.add(&toyItem{id: "s" + id, pod: pod, kind: pleg.Sandbox}, pleg.PhaseRunning, telling{})
					_ = r.add(&toyItem{id: "c" + id, sandbox: "s" + id, kind: pleg.Container}, pleg.PhaseCreated, telling{})
					time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
					r.mu.Lock()
					items := slices.Clone(r.items)
					r.mu.Unlock()
					for _, x := range items {
						switch rng.IntN(4) {
						case 0:
							_ = r.set(x.id, x.phase+1, telling{})
						case 1:
							if rng.IntN(3) == 0 {
								_ = r.set(x.id, pleg.PhaseRemoved, telling{})
							}
						}
					}
				}
			}
			change(1)
			check("both", listening, polling)
			polling.stop()
			change(2)
			check("one stopped", listening)
			listening.stop()
		})
	}
}
