// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"slices"
	"time"
)

// combined are ends of a kind that only the Event about their namespace counts, as the ledger has
// them.
type combined struct {
	Namespace string `json:"namespace"`
	Kind      Kind   `json:"kind"`
	Ends      int64  `json:"ends"`
}

// combinedAction is the action of the Events about namespaces.
const combinedAction = "Combine"

// keyOfCombined returns the key of the Event of a kind about a namespace.
func keyOfCombined(namespace string, kind Kind) eventKey {
	return eventKey{namespace: namespace, reason: string(kind), action: combinedAction}
}

// tally follows the ends in the count of an Event about a namespace whose writing is not confirmed.
// In a storm they are too many to be followed singly.
type tally struct {
	spells []spell // the earliest first
	// sealed: a call that counts the first spell has begun. Later ends do not join the spell: the
	// answer would not be about the whole of it.
	sealed bool
	// refused: see handed.
	refused bool
}

// spell are ends in a row.
type spell struct {
	ends    int64
	numbers uint64 // the sum of their numbers
	// first and last are when the first and the last of them was handed over: see handed.at. Last is
	// zero while some are still to be.
	first, last time.Time
	again       bool // they are in the ledger already
}

// whole reports whether all ends of a spell were handed over until a time.
func (p *spell) whole(until time.Time) bool { return !p.last.IsZero() && !p.last.After(until) }

// join adds a later spell.
func (p *spell) join(next *spell) {
	p.ends += next.ends
	p.numbers += next.numbers
	p.last = next.last
	p.again = p.again || next.again
}

const (
	// maxSpells is the number of spells from which on some are joined, except the newestSpells: a call
	// that begins may count any part of those.
	maxSpells    = 128
	newestSpells = 64
)

// thin joins spells if there are many: those of a keptEarly, because they go into the ledger
// together, and those of more than a tick ago, which are there.
func (t *tally) thin(now time.Time) {
	if len(t.spells) < maxSpells {
		return
	}
	begin := 0
	if t.sealed {
		begin = 1
	}
	end := len(t.spells) - newestSpells
	kept := t.spells[:begin+1]
	for i := begin + 1; i < end; i++ {
		p := &kept[len(kept)-1]
		next := t.spells[i]
		if next.last.Sub(p.first) <= keptEarly || next.whole(now.Add(-tick)) {
			p.join(&next)
		} else {
			kept = append(kept, next)
		}
	}
	t.spells = append(kept, t.spells[end:]...)
}

// seal joins the ends until a time, which a call that begins counts.
func (t *tally) seal(until time.Time) {
	n := t.until(until)
	if n == 0 {
		return
	}
	for i := 1; i < n; i++ {
		t.spells[0].join(&t.spells[i])
	}
	t.spells = slices.Delete(t.spells, 1, n)
	t.sealed = true
}

// until returns the number of spells that were handed over until a time.
func (t *tally) until(until time.Time) int {
	n := 0
	for n < len(t.spells) && t.spells[n].whole(until) {
		n++
	}
	return n
}

// take drops the ends until a time.
func (t *tally) take(until time.Time) {
	n := t.until(until)
	t.spells = slices.Delete(t.spells, 0, n)
	t.sealed = t.sealed && n == 0
}

// drop drops a number of ends, the earliest, and returns how many of the number there were not.
func (t *tally) drop(excess int64) (left int64) {
	for excess > 0 && len(t.spells) > 0 {
		p := &t.spells[0]
		if p.ends > excess {
			p.ends -= excess
			return 0
		}
		excess -= p.ends
		t.spells = slices.Delete(t.spells, 0, 1)
		t.sealed = false
	}
	return excess
}

// ends returns the number of ends.
func (t *tally) ends() (n int64) {
	for i := range t.spells {
		n += t.spells[i].ends
	}
	return n
}

// count follows an end, before the recorder gets it.
func (s *Sink) count(key eventKey) {
	at := s.timeFor(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally(key)
	t.spells = append(t.spells, s.spell(1, at, at))
	t.thin(at)
}

// uncount takes the last end back, which the recorder has dropped.
func (s *Sink) uncount(key eventKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[key]
	if t == nil || len(t.spells) == 0 {
		return
	}
	last := len(t.spells) - 1
	p := &t.spells[last]
	p.numbers -= p.numbers / uint64(p.ends)
	p.ends--
	if p.ends == 0 {
		t.spells = t.spells[:last]
		t.sealed = t.sealed && last > 0
	}
	s.tidy(key)
}

// countAgain follows ends that are in the ledger, before the recorder gets them. Last is to be
// called before the recorder gets the last of them.
func (s *Sink) countAgain(key eventKey, ends int64) (last func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally(key)
	p := s.spell(ends, time.Now(), time.Time{})
	p.again = true
	t.spells = append(t.spells, p)
	return func() {
		at := laterThan(time.Now())
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(t.spells) > 0 {
			t.spells[len(t.spells)-1].last = at
		}
	}
}

// spell returns new ends. The caller holds the lock.
func (s *Sink) spell(ends int64, first, last time.Time) spell {
	n := uint64(ends)
	p := spell{
		ends:    ends,
		numbers: n*s.handed + n*(n+1)/2,
		first:   first,
		last:    last,
	}
	s.handed += n
	return p
}

// tally returns the tally of an Event; one that nobody keeps if there are too many. The caller
// holds the lock.
func (s *Sink) tally(key eventKey) *tally {
	t := s.tallies[key]
	if t == nil {
		t = &tally{}
		if len(s.tallies) < maxUnsent {
			s.tallies[key] = t
		}
	}
	return t
}
