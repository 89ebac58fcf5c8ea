// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"slices"
	"time"
)

// The time of a search. Every delay that the core knows is some proveUnits long, and time passes in
// two ways: by a moment of a few nanoseconds for each input, and by proveJump at once, which is
// longer than every delay but the grace, and more than half of that. So what the core decides
// depends on the order of instants within one such rest, and on how many rests lie between, and a
// state whose instants are renumbered accordingly is the same state: see canon.
const (
	proveUnit  = time.Duration(1 << 20)
	proveDelay = 50 * proveUnit // every delay but the grace
	proveJump  = 60 * proveUnit
	proveGrace = 100 * proveUnit
	proveOld   = 2 * proveJump // older than this is no older than this: all delays are over

	proveMoment = 2       // nanoseconds from one input to the next, and between instants of a state
	proveNow    = 1 << 40 // where now is put
)

// canon renumbers the instants that an encoder has collected, the last of which is now, so that
// states that no decision of the core can tell apart become the same. What is ordered keeps its
// order; a moment keeps its place among the begins of the reads that may still be compared with it,
// and loses its place among all else. Oldest is the begin of the oldest of those reads, or now.
// Each instant since then, and each moment, keeps the rest in which it is.
func (q *quotient) canon(e *encoder, oldest instant) []instant {
	now := e.at[len(e.at)-1]
	q.order = q.order[:0]
	for i, at := range e.at {
		if at != 0 && at != never {
			q.order = append(q.order, stamped{at.add(shifted(at, now, oldest)), e.kind[i]})
		}
	}
	slices.SortFunc(q.order, func(a, b stamped) int { return cmp.Compare(a.at, b.at) })
	q.placeRests(now, oldest)
	edge := oldest // what is ordered, and older, keeps its order alone
	for i, at := range e.at {
		if e.kind[i] == dated && restOf(at) == restOf(now) {
			edge = min(edge, at)
		}
	}
	q.renumber(oldest, edge)
	q.out = q.out[:0]
	for i, at := range e.at {
		if at != 0 && at != never {
			shift := shifted(at, now, oldest)
			k, _ := slices.BinarySearch(q.from, at.add(shift))
			if e.kind[i] == moment {
				at = q.moments[k].add(-shift)
			} else {
				at = q.ordered[k]
			}
		}
		q.out = append(q.out, at)
	}
	return q.out
}

// renumber says what becomes of each instant, as something ordered and as a moment. What is older
// than edge keeps its order alone, before all rests.
func (q *quotient) renumber(oldest, edge instant) {
	q.from, q.ordered, q.moments = q.from[:0], q.ordered[:0], q.moments[:0]
	old, place, last, begun := instant(proveMoment), instant(-1), instant(0), instant(0)
	for i := 0; i < len(q.order); {
		at, classes := q.order[i].at, [instantClasses]bool{}
		if q.place[i] != place {
			place = q.place[i]
			last, begun = place, place
		}
		for ; i < len(q.order) && q.order[i].at == at; i++ {
			classes[q.order[i].class] = true
		}
		to, isOrdered := begun+1, classes[begin] || classes[order] || classes[dated]
		switch {
		case isOrdered && at < edge:
			old += proveMoment
		case isOrdered:
			last += proveMoment
			if classes[begin] && at >= oldest {
				begun, to = last, last
			}
		}
		q.from, q.moments = append(q.from, at), append(q.moments, to)
		if at < edge {
			q.ordered = append(q.ordered, old)
		} else {
			q.ordered = append(q.ordered, last)
		}
	}
}

// placeRests says for each instant where the rest that it is in is put: the present one at
// proveNow, and each before it as long before the next as it was, but no longer than all delays
// take. What was as long before the oldest read under way, which it may still be compared with, is
// put together: only its order matters.
func (q *quotient) placeRests(now, oldest instant) {
	q.place = append(q.place[:0], make([]instant, len(q.order))...)
	present, edge := restOf(now), restOf(oldest)-instant(proveOld)
	next, nextPlace := present, instant(proveNow)
	for i := len(q.order) - 1; i >= 0; i-- {
		rest := max(restOf(q.order[i].at), edge)
		switch {
		case rest >= present:
			q.place[i] = proveNow + rest - present
			continue
		case rest < next:
			nextPlace -= min(next-rest, instant(proveOld))
			next = rest
		}
		q.place[i] = nextPlace
	}
}

// shifted returns the grace for an instant that is the grace before another one, which is where its
// order counts: an ack dates a claim back so that the grace ends with the ack. Else, and once all
// reads under way began after that, it returns 0.
func shifted(at, now, oldest instant) time.Duration {
	rest := restOf(now) - restOf(at)
	dated := rest > 0 && rest%instant(proveJump) == instant(proveGrace%proveJump)
	if !dated || restOf(at.add(proveGrace)) < restOf(oldest) {
		return 0
	}
	return proveGrace
}

// restOf returns the beginning of the rest that an instant is in.
func restOf(at instant) instant { return at - at%instant(proveUnit) }

type stamped struct {
	at    instant
	class instantClass
}

// quotient is the memory of canon, used again.
type quotient struct {
	order            []stamped
	place            []instant // of the rest that each is in
	from             []instant // what there is, and what it becomes: what is ordered, and a moment
	ordered, moments []instant
	out              []instant
}
