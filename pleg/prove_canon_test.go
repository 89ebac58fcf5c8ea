// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"strings"
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
// states that no decision of the core can tell apart become the same. Instants keep their order,
// but moments that no begin of a read separates become one; each keeps the rest in which it is, and
// has a place in it that only the order decides. Oldest is the begin of the oldest read under way,
// or now.
func (q *quotient) canon(e *encoder, oldest instant) []instant {
	q.order = q.order[:0]
	now := e.at[len(e.at)-1]
	for i, at := range e.at {
		if at != 0 && at != never {
			q.order = append(q.order, stamped{at.add(shifted(at, now, oldest)), e.kind[i] == begin})
		}
	}
	slices.SortFunc(q.order, func(a, b stamped) int { return int(a.at - b.at) })
	q.placeRests(now, oldest)
	q.from, q.to = q.from[:0], q.to[:0]
	last, lastBegin := instant(-1), true // as renumbered; and whether it is a begin's
	for i := 0; i < len(q.order); {
		j, isBegin := i, false
		for ; j < len(q.order) && q.order[j].at == q.order[i].at; j++ {
			isBegin = isBegin || q.order[j].begin
		}
		at, place := q.order[i].at, q.place[i]
		switch {
		case last < place:
			last = place + proveMoment
		case isBegin || lastBegin:
			last += proveMoment
		}
		lastBegin = isBegin
		q.from, q.to = append(q.from, at), append(q.to, last)
		i = j
	}
	q.out = q.out[:0]
	for _, at := range e.at {
		if at != 0 && at != never {
			shift := shifted(at, now, oldest)
			k, _ := slices.BinarySearch(q.from, at.add(shift))
			at = q.to[k].add(-shift)
		}
		q.out = append(q.out, at)
	}
	return q.out
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
	if rest <= 0 || rest%instant(proveJump) != instant(proveGrace%proveJump) || restOf(at.add(proveGrace)) < restOf(oldest) {
		return 0
	}
	return proveGrace
}

// restOf returns the beginning of the rest that an instant is in.
func restOf(at instant) instant { return at - at%instant(proveUnit) }

type stamped struct {
	at    instant
	begin bool
}

// quotient is the memory of canon, used again.
type quotient struct {
	order    []stamped
	place    []instant // of the rest that each is in
	from, to []instant
	out      []instant
}

// normalize takes out of a core what decides nothing any more: entries of queues that are passed
// over, times that are over, the order of IDs. What it leaves is a core that decides the same.
func (c *core[S]) normalize(sc *proveScope, now instant) {
	n := counters{}
	if sc.streams && c.count.claims != c.deafness.claims {
		n.claims = 1
	}
	n.acksLost = min(1, c.count.acksLost)
	c.count, c.deafness.claims = n, 0
	c.expired, c.sched.raised = now, 0
	c.pruned, c.sched.ended = timerOf(c.pruned), timerOf(c.sched.ended)
	if !sc.streams {
		c.missing, c.deafness, c.lies = fifo[candidate]{}, deafness{}, lies{}
		c.deaf = 0
		if c.conn.state == StreamConnected {
			c.heard, c.conn.connected = 1, 1
		}
	}
	if !sc.lists {
		c.pin(now)
	}
	c.conn.attempts = min(c.conn.attempts, eofsOfRestart)
	c.turn = notQueued // there are workers for all
	for kind := range c.queues {
		q := &c.queues[kind]
		q.compact()
		q.items = slices.DeleteFunc(q.items, func(p *pod) bool { return p.queued != queueKind(kind) })
		q.tidy()
	}
	c.expiring.compact()
	c.missing.compact()
	c.laterQ = slices.DeleteFunc(c.laterQ, func(e laterEntry) bool { return e.at != e.pod.laterAt || c.pods[e.pod.uid] != e.pod })
	slices.SortFunc(c.laterQ, func(a, b laterEntry) int {
		if restOf(a.at) == restOf(b.at) {
			return byUID(a.pod, b.pod) // they come up in one turn of the loop
		}
		return int(a.at - b.at)
	})
	c.laterQ = slices.CompactFunc(c.laterQ, func(a, b laterEntry) bool { return a.pod == b.pod })
	if len(c.laterQ) == 0 {
		c.laterQ = nil
	}
	for e := range c.expiring.all() {
		e.pod.normalize(sc, now) // which may be a forgotten one
	}
	for _, p := range c.pods {
		p.normalize(sc, now)
	}
}

// timerOf puts an instant that is compared with now alone at the beginning of its rest.
func timerOf(at instant) instant {
	if at == 0 {
		return 0
	}
	return restOf(at) + 1
}

// pin has no list be due: lists are rarer than all else.
func (c *core[S]) pin(now instant) { c.sched.ended = now }

func (q *fifo[T]) compact() {
	q.items, q.head = q.items[q.head:], 0
	q.tidy()
}

func (q *fifo[T]) tidy() {
	if len(q.items) == 0 {
		q.items = nil
	}
}

func (p *pod) normalize(sc *proveScope, now instant) {
	if !sc.streams {
		p.unjudged()
	}
	if p.listing == nil {
		p.listingBegan = 0
	}
	if p.own.hold <= now {
		p.own.hold = 0
	}
	if len(p.suspects) == 0 {
		p.suspects = nil
	}
	if len(p.contested) == 0 {
		p.contested = nil
	}
	if len(p.items) == 0 {
		p.items = nil
	}
	slices.SortFunc(p.items, func(a, b *item) int { return strings.Compare(a.id, b.id) })
	for i, x := range p.items {
		x.at = i
	}
}

// unjudged forgets what serves the judgement of the stream alone.
func (p *pod) unjudged() {
	for _, x := range p.items {
		x.claimed, x.cause, x.borne = PhaseUnknown, CauseRead, false
		if x.byClaim {
			x.claimed, x.cause = x.phase, CauseClaim
		}
	}
}
