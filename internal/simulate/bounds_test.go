// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
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
		holds(
			t,
			append(
				h,
				"advance 5s",
				"expect stat Missed 0",
				"expect stat Regressions 0",
				"expect stat Overruled 0",
				"settle",
			),
		)
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
