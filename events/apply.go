// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math/rand/v2"
	"time"
)

// step feeds an input to a series and carries out the effects. The lock is held.
func (b *Broadcaster) step(s *series, in input) {
	in.rand = rand.Float64()
	wasRejected := s.st.phase == rejected
	var e effects
	s.st, e = step(s.st, in, &b.policy)
	if e.forget && !wasRejected && s.st.stored > 0 && s.st.closing != suspended {
		b.tab.dormant.put(s.id, s.st)
	}
	b.apply(s, e)
}

// apply brings the table in line with the state of a series. The lock is held.
func (b *Broadcaster) apply(s *series, e effects) {
	t := &b.tab
	b.count.acked += e.acked
	b.count.unsent -= e.acked + e.lost
	b.count.drop(DropRejected, e.lost)
	if e.adopted {
		b.count.transitions["adopted"]++
	}
	if s.st.phase != settling {
		t.written(s)
	}
	if e.forget {
		if s.st.closing == finished && s.st.stored > 1 {
			b.count.transitions["finished"]++
		}
		t.forget(s)
		return
	}
	switch s.st.closing {
	case finished, suspended:
		t.retire(s)
	case evicted:
		t.aged.remove(s)
	default:
		if s.current && s.st.phase != settling && !s.listed {
			t.aged.touch(s)
		}
	}
	t.schedule(s, e.wake)
	if e.owes && t.enqueue(s) {
		b.signal()
	}
}

// evict makes room in the table by closing the series whose last occurrence is the longest ago. What they still owe is sent before anything
// else. The lock is held.
func (b *Broadcaster) evict(now time.Time) {
	for b.tab.aged.len > b.opts.MaxSeries {
		s := b.tab.aged.oldest()
		b.tab.aged.remove(s)
		b.count.transitions["evicted"]++
		b.tab.dequeue(s) // it moves to the front
		b.step(s, input{kind: inClose, closing: evicted, now: now})
	}
}
