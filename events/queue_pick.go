// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"time"
)

// take returns the ticket of the next call, as a call under way; or nil, and the time until there
// may be one.
func (q *queue) take(now time.Time) (t *ticket, wait time.Duration) {
	if q.server.failing() {
		wait = q.server.shut(now)
		if wait > 0 {
			return nil, wait
		}
		if len(q.flights) >= 3*q.width {
			return nil, forever // until an answer
		}
		t, wait = q.pickForServer(now)
		if t == nil {
			return nil, wait
		}
		return q.launch(t, now, true), 0
	}
	wait = forever
	if q.roomToTry(now) {
		t, wait = q.takeDue(now)
		if t != nil {
			return q.launch(t, now, true), 0
		}
	}
	free := q.width - len(q.flights) + q.hanging(now)
	room := q.room(now)
	beside := q.roomBeside(now)
	switch {
	case room == 0:
		t = q.takeReady(q.lanesFor(free), now)
	case beside == 0:
		t = q.takeReady(q.firstIdleLane, now)
		wait = min(wait, room)
	default:
		wait = min(wait, room, beside)
	}
	if t != nil {
		return q.launch(t, now, false), 0
	}
	return nil, wait
}

// firstLane returns the ready lane with the first ticket, nil for none.
func (q *queue) firstLane() *lane {
	if q.ready.Len() == 0 {
		return nil
	}
	return q.ready.items[0]
}

// firstIdleLane returns the ready lane whose turn it is, of the namespaces without a call under
// way, nil for none.
func (q *queue) firstIdleLane() *lane {
	if q.idle.Len() == 0 {
		return nil
	}
	return q.idle.items[0]
}

// lanesFor returns how the lane for a free place is chosen: by the order of emission, but for the
// last of several places. That one is for a namespace without a call under way, if there is one,
// and these take turns: namespaces with slow calls and a backlog would delay all others by the
// backlog. So an event waits for the earlier ones of its namespace, and for a call or so of each
// other namespace.
func (q *queue) lanesFor(free int) (next func() *lane) {
	if q.width == 1 || free > 1 { // with one call at a time, all are made in order
		return q.firstLane
	}
	return func() *lane {
		l := q.firstIdleLane()
		if l != nil {
			return l
		}
		return q.firstLane()
	}
}

// takeReady returns the first ticket of the lanes that next chooses.
func (q *queue) takeReady(next func() *lane, now time.Time) *ticket {
	for l := next(); l != nil; l = next() {
		if l.space.flying > 0 && q.stalled(l.space, now) {
			q.ready.set(l, false) // until a call of the namespace ends; it is not idle
			continue
		}
		t := l.line.first
		o := q.objects[t.owner.place().object]
		if o == nil || !o.busy && !o.failing() {
			return t
		}
		l.line.remove(t)
		o.line.insert(t)
		q.schedule(&o.node)
		q.refresh(l)
	}
	return nil
}

// takeDue returns a ticket that tries a failing scope; or nil, and the time until one is due.
func (q *queue) takeDue(now time.Time) (t *ticket, wait time.Duration) {
	for q.timers.Len() > 0 {
		n := q.timers.items[0]
		wait = n.until.Sub(now)
		if wait > 0 {
			return nil, wait
		}
		q.timers.set(n, false)
		t = q.pickFor(n, now)
		if t != nil {
			return t, 0
		}
	}
	return nil, forever
}

// pickFor returns the ticket that tries a failing scope, nil if none may now.
func (q *queue) pickFor(n *node, now time.Time) *ticket {
	switch {
	case n.ns != nil:
		return q.pickIn(n.ns, now)
	case n.lane != nil && n.lane.space.shut(now) > 0:
		return nil // the namespace comes first
	case n.lane != nil && n.lane.space.failing():
		return q.pickIn(n.lane.space, now)
	case n.lane != nil:
		return q.best(&n.lane.line, now)
	}
	o := n.obj
	t := o.line.first
	if t == nil || o.busy {
		return nil
	}
	l := q.lane(t.owner.place())
	if l.failing() || l.space.failing() { // these are tried first, perhaps with this ticket
		q.unpark(o)
		return nil
	}
	return t
}

// pickIn returns the ticket that tries a namespace.
func (q *queue) pickIn(ns *namespace, now time.Time) (best *ticket) {
	for i := range ns.lanes {
		l := &ns.lanes[i]
		if l.shut(now) > 0 {
			continue
		}
		t := q.best(&l.line, now)
		if t != nil && (best == nil || t.tried < best.tried) {
			best = t
		}
	}
	return best
}

// best returns the ticket of a line that was tried the longest ago, nil for none. Objects that fail
// by themselves come last. Of those never tried, the first and the last come in turn: what was
// emitted after a hundred bad ones may be good.
func (q *queue) best(l *line, now time.Time) (best *ticket) {
	backwards := q.turn%2 == 1 && !q.nobody
	rank := func(t *ticket) int64 {
		o := q.objects[t.owner.place().object]
		switch {
		case o != nil && o.busy:
			return -1
		case q.nobody:
			return 0
		case o != nil && o.failing():
			return 1 + 2*t.tried
		}
		return 2 * t.tried
	}
	lowest := int64(-1)
	t := l.first
	if backwards {
		t = l.last
	}
	for t != nil {
		r := rank(t)
		if r >= 0 && (lowest < 0 || r < lowest) {
			lowest = r
			best = t
		}
		if lowest == 0 {
			return best
		}
		if backwards {
			t = t.prev
		} else {
			t = t.next
		}
	}
	return best
}

// asked returns the time before which the server has asked not to send a ticket, nil for none.
func (q *queue) asked(ns *namespace, t *ticket) (until time.Time) {
	if t == nil {
		return until
	}
	until = ns.asked
	o := q.objects[t.owner.place().object]
	if o != nil && o.asked.After(until) {
		until = o.asked
	}
	return until
}

// pickForServer returns the ticket that tries the server: namespaces take turns, healthy ones
// first, and those asked to wait do so; or nil, and the time until there is one. Where nobody
// answers, no namespace is to blame: the first ticket is the next.
func (q *queue) pickForServer(now time.Time) (best *ticket, wait time.Duration) {
	var from *namespace
	newest := q.turn%2 == 1 && !q.nobody
	wait = forever
	before := func(a, b *namespace, ta, tb *ticket) bool {
		switch {
		case b == nil:
			return true
		case q.nobody:
			return ta.seq < tb.seq
		case a.doubted() != b.doubted():
			return b.doubted()
		case a.tried != b.tried:
			return a.tried < b.tried
		}
		return (ta.seq < tb.seq) != newest
	}
	q.settleAll()
	for _, ns := range q.namespaces {
		t := q.pickIn(ns, now)
		asked := q.asked(ns, t).Sub(now)
		switch {
		case t == nil:
		case asked > 0:
			wait = min(wait, asked)
		case before(ns, from, t, best):
			from = ns
			best = t
		}
		for i := range ns.lanes {
			if ns.lanes[i].line.n > 0 && ns.lanes[i].shut(now) > 0 {
				wait = min(wait, ns.lanes[i].shut(now))
			}
		}
	}
	return best, wait
}
