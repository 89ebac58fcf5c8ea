// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"slices"
	"time"
)

// Longest is the longest time for which a loop is left out: a change that nobody counted is found
// then. Longest is a twelfth of the time that a pod worker waits for volumes in vain before its
// sync fails, and a ninth of the longest lag of a list from memory.
const Longest = 10 * time.Second

// Counted is anything that counts its changes.
type Counted interface {
	// Changes returns a number that differs from all earlier numbers after a change. The number from
	// before a look is of the state looked at, or of an older state.
	Changes() uint64
}

// Source returns a revision, like the method of [Counted], and whether it is known now.
type Source func() (revision uint64, known bool)

// Of returns the source of anything that counts its changes. The revision of anything else is never
// known.
func Of(it any) Source {
	c, ok := it.(Counted)
	if !ok {
		return func() (uint64, bool) { return 0, false }
	}
	return func() (uint64, bool) { return c.Changes(), true }
}

// Rounds decide which rounds of a loop are left out: those before which no source has moved since
// before the last round, if that round is known to have left nothing to be done. Nil Rounds leave
// out none. The methods are for the goroutine of the loop.
type Rounds struct {
	longest time.Duration
	sources []Source

	began   time.Time // of the last round
	before  []uint64  // the revisions before the last round
	now     []uint64  // room for the revisions of Due
	known   bool      // all revisions before the last round were known
	left    bool      // the last round has left something
	settled bool      // the last round has ended, all known, nothing left
}

// NewRounds returns Rounds for a loop that looks at the sources and is left out for that long at
// most.
func NewRounds(longest time.Duration, sources ...Source) *Rounds {
	return &Rounds{
		longest: longest,
		sources: sources,
		before:  make([]uint64, len(sources)),
		now:     make([]uint64, len(sources)),
	}
}

// Due reports whether the loop must make its round now. If so, the round has begun.
func (r *Rounds) Due(at time.Time) bool {
	if r == nil {
		return true
	}
	known := true
	for i, source := range r.sources {
		revision, ok := source()
		r.now[i] = revision
		known = known && ok
	}
	if r.settled && known && at.Sub(r.began) < r.longest && slices.Equal(r.before, r.now) {
		return false
	}
	r.began = at
	copy(r.before, r.now)
	r.known = known
	r.left = false
	r.settled = false
	return true
}

// Left tells that the round has seen something that the next round may have to do although no
// source moves: something is to be tried again, or may end by itself.
func (r *Rounds) Left() {
	if r != nil {
		r.left = true
	}
}

// Done ends the round. A round without Done, which has failed, is followed by another.
func (r *Rounds) Done() {
	if r != nil {
		r.settled = r.known && !r.left
	}
}
