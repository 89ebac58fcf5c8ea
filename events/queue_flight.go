// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"slices"
	"time"
)

// flight is a call under way.
type flight struct {
	place place
	// site holds the scopes of the place: those of a call under way are not forgotten.
	site   site
	number int64 // of all calls
	began  time.Time
	// tries: the call tries a failing scope.
	tries bool
	// overtaken: a call that began later was answered.
	overtaken bool
}

// slowAfter is the age from which on a call may be one that hangs.
const slowAfter = 2 * time.Second

func (f *flight) slow(now time.Time) bool { return now.Sub(f.began) >= slowAfter }

// hanging returns how many calls try a failing scope, or hang while later ones are answered.
func (q *queue) hanging(now time.Time) (n int) {
	for i := range q.flights {
		f := &q.flights[i]
		if f.tries || f.overtaken && f.slow(now) {
			n++
		}
	}
	return n
}

// roomToTry reports whether a further call may try a failing scope.
func (q *queue) roomToTry(now time.Time) bool {
	return q.hanging(now) < q.width && len(q.flights) < 3*q.width
}

// room returns the time until a further healthy call may begin, 0 for now. Where all calls under
// way may hang, one more after a while finds out, and one more after four times that.
func (q *queue) room(now time.Time) time.Duration {
	beyond := len(q.flights) - q.hanging(now) - q.width
	switch {
	case len(q.flights) >= 3*q.width:
		return forever
	case beyond < 0:
		return 0
	}
	return max(q.lastStart.Add(slowAfter<<(2*min(beyond, 8))).Sub(now), 0)
}

// besideAfter is how long calls may last before one of another namespace begins beside them.
const besideAfter = 250 * time.Millisecond

// roomBeside returns the time until a call of a namespace without one may begin although as many
// are under way as may be, 0 for now: these may hang for a reason of their namespaces.
func (q *queue) roomBeside(now time.Time) time.Duration {
	full := len(q.flights)-q.hanging(now) == q.width && len(q.flights) < 3*q.width
	if !full || q.width == 1 { // with one call at a time, all are made in order
		return forever
	}
	var latest time.Time
	for i := range q.flights {
		f := &q.flights[i]
		if !f.tries && f.began.After(latest) {
			latest = f.began
		}
	}
	return max(latest.Add(besideAfter).Sub(now), 0)
}

// stalled reports whether a call of a namespace may hang: another would, too.
func (q *queue) stalled(ns *namespace, now time.Time) bool {
	return slices.ContainsFunc(q.flights, func(f flight) bool {
		return f.place.namespace == ns.name && f.slow(now)
	})
}

// launch books a ticket's call as under way.
func (q *queue) launch(t *ticket, now time.Time, tries bool) *ticket {
	p := t.owner.place()
	in := t.in
	in.remove(t)
	q.waiting--
	if in.lane != nil {
		q.refresh(in.lane)
	}
	l := in.lane
	if l == nil {
		l = q.lane(p)
	}
	q.begin(p, site{l.space, l, q.object(p.object)}, now, tries)
	t.tried = max(q.turn, 1) // a scope that fails is first tried with what has not failed yet
	return t
}

// begin books a call as under way.
func (q *queue) begin(p place, at site, now time.Time, tries bool) {
	at.ns.flying++
	if tries {
		q.turn++
		at.ns.tried = q.turn
	}
	at.obj.busy = true
	q.server.becomeTrying()
	for _, n := range at.nodes() {
		n.becomeTrying()
		q.schedule(n)
	}
	q.lastStart = now
	q.begun++
	at.lane.turn = q.begun
	for i := range at.ns.lanes {
		q.idle.set(&at.ns.lanes[i], false) // until the call has ended
	}
	q.flights = append(q.flights, flight{
		place:  p,
		site:   at,
		number: q.begun,
		began:  now,
		tries:  tries,
	})
}

// admit reports whether a call without a ticket may be made, and books it as under way; otherwise
// it returns the time until then.
func (q *queue) admit(p place, now time.Time) (ok bool, wait time.Duration) {
	l := q.lane(p)
	ns := l.space
	o := q.object(p.object)
	defer q.settle(o)
	wait = max(q.server.shut(now), ns.shut(now), l.shut(now), o.shut(now))
	tries := q.server.failing() || ns.failing() || l.failing() || o.failing()
	switch {
	case o.busy:
		wait = forever
	case wait > 0:
	case tries && !q.server.failing() && !q.roomToTry(now):
		wait = forever // until an answer
	case !tries:
		wait = q.room(now)
	}
	if wait > 0 {
		return false, wait
	}
	q.begin(p, site{ns, l, o}, now, tries)
	return true, 0
}

// land books that a call has ended, and returns it.
func (q *queue) land(p place) (f flight) {
	i := slices.IndexFunc(q.flights, func(f flight) bool { return f.place.object == p.object })
	f = q.flights[i]
	q.flights = slices.Delete(q.flights, i, i+1)
	f.site.obj.busy = false
	f.site.ns.flying--
	return f
}
