// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// holds runs a history that must run as it expects.
func holds(t *testing.T, h History) {
	t.Helper()
	r := inBubble(t, h, Options{Strict: true})
	if r.Violation != nil || r.Err != nil {
		t.Errorf("violation %v, error %v in\n%s", r.Violation, r.Err, h)
	}
}

// TestCutStreamIsNoLiar cuts an honest stream at random while containers come and go: nobody could
// hear the events of the gaps, so that none is missed, and no phase goes back.
func TestCutStreamIsNoLiar(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := History{"config profile containerd-1.7", "config torn true", "config latency 5ms", "start"}
		add := func(format string, args ...any) { h = append(h, fmt.Sprintf(format, args...)) }
		for i := range 150 {
			switch {
			case i < 4:
				add("runtime sandbox p%d s%d", i, i)
			case i%3 == 0:
				add("runtime container s%d c%d", i%4, i)
				add("runtime start c%d", i)
			case i%3 == 1 && i > 15:
				add("runtime exit c%d", i-10)
			case i%3 == 2 && i > 25:
				add("runtime remove c%d", i-20)
			}
			if i%5 == 0 && i > 4 { // in a list, and gone by the read of its pod
				add("runtime container s%d short%d", i%4, i)
				add("relist")
				add("advance %dms", rng.IntN(12))
				add("runtime remove short%d", i)
			}
			if rng.IntN(10) == 0 {
				add("stream %s", []string{"cut", "eof"}[rng.IntN(2)])
			}
			add("advance %dms", rng.IntN(120))
		}
		holds(t, append(h, "advance 5s", "expect stat Missed 0", "expect stat Regressions 0", "expect stat Overruled 0", "settle"))
	}
}

// TestHungReadsHoldNobodyUp has the reads of many pods hang: another pod that is waited for is read
// within 1.5 base periods.
func TestHungReadsHoldNobodyUp(t *testing.T) {
	for _, n := range []int{4, 20, 100, 400} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := History{"config latency 1ms", "config sweep-at 100000", "runtime sandbox p0 s0"}
			var hung []string
			for i := 1; i <= n; i++ {
				h = append(h, fmt.Sprintf("runtime sandbox p%d s%d", i, i))
				hung = append(hung, fmt.Sprintf("p%d", i))
			}
			h = append(h, "start", "settle", "advance 1000s", "reads pod hang only="+strings.Join(hung, ","))
			for _, p := range hung {
				h = append(h, "wait "+p)
			}
			h = append(h, "wait p0 as=w", "advance 1500ms", "expect waiter w done",
				"advance 3s", "wait p0 as=x", "advance 1500ms", "expect waiter x done")
			holds(t, h)
		})
	}
}

// TestLyingStreamsKeepNobodyWaiting has the stream lie more often than a grace passes, of another
// container each time: a read is believed once a grace has passed without a store.
func TestLyingStreamsKeepNobodyWaiting(t *testing.T) {
	for _, every := range []time.Duration{300 * time.Millisecond, 700 * time.Millisecond, 1900 * time.Millisecond} {
		n := int(8*time.Second/every) + 1
		for name, unseen := range map[string]bool{"removals of what lives and no read has shown": true, "ends of what lists do not know": false} {
			t.Run(fmt.Sprintf("%s, every %v", name, every), func(t *testing.T) {
				h := History{"start", "runtime sandbox p1 s1", "advance 1s"}
				each := func(line string) {
					for i := range n {
						h = append(h, fmt.Sprintf(line, i))
					}
				}
				lie := "claim p1 c%d Removed"
				if unseen {
					h = append(h, "advance 60s")
					each("runtime container s1 c%d drop")
				} else {
					lie = "claim p1 c%d Exited"
					each("runtime container s1 c%d")
					each("runtime start c%[1]d")
					h = append(h, "advance 60s")
					each("runtime blur c%d")
				}
				h = append(h, fmt.Sprintf(lie, 0), "advance 1ms", "wait p1 as=w")
				for i := range n - 1 {
					h = append(h, fmt.Sprintf("advance %v", every), fmt.Sprintf(lie, i+1))
				}
				holds(t, append(h, "expect waiter w done"))
			})
		}
	}
}

// TestOwnCallsAreBounded has the agent tell of calls about IDs that nobody knows, beside a waiter
// for no pod, and of calls whose end it never tells.
func TestOwnCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwin(t, newToy(NewTruth(), 1), defaultSettings())
		defer w.stop()
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		go func() { _, _ = w.cache.GetNewerThan(ctx, "", time.Now()) }()
		synctest.Wait()
		for i := range 10 {
			returned := w.gen.Calling(pleg.OwnCall{ID: fmt.Sprintf("c%d", i)})
			time.Sleep(time.Millisecond)
			returned(nil, pleg.Item{ID: fmt.Sprintf("c%d", i), Phase: pleg.PhaseRemoved})
		}
		time.Sleep(30 * time.Second)
		if n := w.gen.Stats().Pods; n != 0 {
			t.Errorf("%d pods are remembered of a runtime that has none", n)
		}
		const calls = 20_000
		for i := range calls {
			w.gen.Calling(pleg.OwnCall{Pod: pleg.PodRef{UID: cache.UID(fmt.Sprintf("u%d", i))}})
			if i%1000 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(30 * time.Second)
		if s := w.gen.Stats(); s.Pods > calls/2 || s.DiscardedAcks == 0 {
			t.Errorf("%d calls without an end keep %d pods, and %d calls were discarded", calls, s.Pods, s.DiscardedAcks)
		}
	})
}
