// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// FuzzObservations runs a sequence of observations, one a byte, through the core in the small world
// of TestExplore, and compares what the cache shows and what Watch was told with the runtime's
// history after each.
func FuzzObservations(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14})
	f.Add([]byte{9, 0, 1, 11, 8, 13, 12, 8, 14, 10, 0, 0, 1, 11, 8, 9})
	f.Add([]byte{2, 3, 11, 2, 3, 12, 13, 2, 9, 12, 3, 14, 14, 10, 12})
	f.Fuzz(func(t *testing.T, ops []byte) {
		s := newSmall()
		var names []string
		for _, b := range ops[:min(len(ops), 80)] {
			op := smallOps[int(b)%len(smallOps)]
			if !op.run(s) {
				continue
			}
			names = append(names, op.name)
			s.check()
			if len(s.wrong) > 0 {
				t.Fatalf("%s: %s", strings.Join(names, ", "), strings.Join(s.wrong, "; "))
			}
		}
		s.rest()
		if len(s.wrong) > 0 {
			t.Fatalf("%s, and then rest: %s", strings.Join(names, ", "), strings.Join(s.wrong, "; "))
		}
	})
}

// rest answers every read truly until nothing is wanted before the next relist, and then compares
// the cache with the runtime.
func (s *small) rest() {
	for range 60 {
		s.now = s.now.add(time.Second)
		s.turn()
		for s.inspected(false) || s.listed(false) {
			s.turn()
		}
	}
	s.check()
	for _, d := range s.ids {
		shown, _ := s.cache.Get(d.pod)
		phase := phaseNone
		for _, it := range shown.Items {
			if it.ID == d.id {
				phase = it.Phase
			}
		}
		want := d.now()
		if want == PhaseRemoved {
			want = phaseNone
		}
		if phase != want {
			s.fail("%s is %v, and shown %v after a minute of rest", d.id, want, phase)
		}
	}
}

// FuzzConn drives the stream machine with two bytes a step, an input and a time, and checks every
// move.
func FuzzConn(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 5, 1, 2, 0, 5, 3, 1, 1, 3, 200})
	f.Add([]byte{0, 0, 4, 0, 5, 255, 3, 0, 5, 255, 1, 0, 4, 9})
	f.Fuzz(func(t *testing.T, steps []byte) {
		cfg := testConn()
		cfg.jitter = 0.1
		c, now := conn{deadline: never}, instant(1)
		for i := 0; i+1 < len(steps); i += 2 {
			now = now.add(time.Duration(steps[i+1]) * 500 * time.Millisecond)
			in := connInput(int(steps[i]) % connInputs)
			next, eff := c.step(cfg, in, now, float64(steps[i+1])/256)
			if eff&effOpen != 0 {
				next = next.opened(cfg, now)
			}
			if what := wrongMove(c, next, in, eff, now, cfg); what != "" {
				t.Fatalf("%+v, %v at %d: %s: %+v, effects %b", c, in, now, what, next, eff)
			}
			c = next
		}
	})
}

// FuzzMailbox puts claims, three bytes each, into a mailbox and checks that what comes out is, ID
// by ID, the latest phase that went in.
func FuzzMailbox(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0, 1, 1, 1, 2, 4}, 3)
	f.Add([]byte{0, 0, 1, 0, 1, 2, 0, 2, 3, 0, 3, 4, 1, 0, 1}, 2)
	f.Fuzz(func(t *testing.T, claims []byte, room int) {
		m := newMailbox[status](max(1, min(room, 64)))
		want := map[string]Phase{}
		for i := 0; i+2 < len(claims); i += 3 {
			pod, id, phase := string(rune('a'+claims[i]%4)), string(rune('A'+claims[i+1]%26)), Phase(claims[i+2]%5)
			m.put(Claim[status]{Pod: cache.UID(pod), Item: Item{ID: pod + id, Phase: phase}}, false)
			if p, ok := want[pod+id]; !ok || phase > p {
				want[pod+id] = phase
			}
		}
		var b batch[status]
		m.take(&b)
		ids := 0
		for _, l := range b.pods {
			for _, told := range l.latest {
				ids++
				p, ok := want[told.item.ID]
				if !ok || p != told.item.Phase && b.dropped == 0 {
					t.Fatalf("%s comes out %v, and went in %v", told.item.ID, told.item.Phase, p)
				}
			}
		}
		if ids > m.max {
			t.Fatalf("%d IDs in a mailbox for %d", ids, m.max)
		}
		if b.dropped == 0 && ids != len(want) {
			t.Fatalf("%d IDs come out, and %d went in", ids, len(want))
		}
		if b.claims != len(claims)/3 {
			t.Fatalf("%d claims counted, %d put in", b.claims, len(claims)/3)
		}
	})
}
