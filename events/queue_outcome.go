// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"time"
)

// blamed is what a failure was blamed on.
type blamed struct {
	// scope is object, namespace or server.
	scope string
	// failures are those of the scope in a row.
	failures int
	// news: the scope was healthy before.
	news bool
}

// succeeded books a successful write: the scopes around it are healthy.
func (q *queue) succeeded(p place, now time.Time) {
	at := q.answered(p).site
	q.server.becomeHealthy()
	for _, n := range at.nodes() {
		n.becomeHealthy()
		q.schedule(n)
	}
	q.prove(now)
	q.rejoin(at)
}

// heard books an answer other than a successful write: the server answers, and writes may be tried.
func (q *queue) heard(p place, now time.Time) {
	landed := q.answered(p)
	q.retry(&landed, now)
	q.prove(now)
	q.rejoin(landed.site)
}

// refused books an answer that refuses this one event.
func (q *queue) refused(p place, now time.Time) {
	landed := q.answered(p)
	at := landed.site
	q.retry(&landed, now)
	q.server.becomeHealthy()
	at.obj.becomeHealthy()
	q.schedule(&at.obj.node)
	q.prove(now)
	q.rejoin(at)
}

// stopped books a call that the recorder itself broke off, or did not make.
func (q *queue) stopped(p place, now time.Time) {
	landed := q.land(p)
	q.retry(&landed, now)
	q.rejoin(landed.site)
}

// failed books a failed call, and returns the scope blamed.
func (q *queue) failed(p place, f failure) blamed {
	landed := q.land(p)
	f.number = landed.number
	f.begun = q.begun
	at := landed.site
	ns := at.ns
	defer q.rejoin(at)
	q.release(&landed)
	if q.server.failing() && !f.everywhere && f.after > q.pace.longest {
		q.closeScope(&at.obj.node, f, 1) // it is asked to wait longer than the server will
	}
	switch {
	case q.server.failing() && f.number <= q.server.closedAt:
		return blamed{"server", q.server.failures, false} // the call began before that was known
	case f.everywhere, q.server.failing():
		news := !q.server.failing()
		q.nobody = f.everywhere
		q.closeServer(f, 1)
		return blamed{"server", q.server.failures, news}
	case ns.failing() && f.number <= ns.closedAt:
		return blamed{"namespace", ns.failures, false}
	case ns.failing():
		q.closeScope(&ns.node, f, 1)
		return blamed{"namespace", ns.failures, false}
	}
	return q.failedIn(ns, at.obj, f)
}

// failedIn books a failed call of an object of a healthy namespace.
func (q *queue) failedIn(ns *namespace, o *object, f failure) blamed {
	news := !o.failing()
	q.closeScope(&o.node, f, 1)
	if !news {
		return blamed{"object", o.failures, false}
	}
	q.server.becomeRefusing()
	ns.becomeRefusing()
	first := len(ns.suspects) == 0
	wide := ns.becomeSuspected(o.key.String()) >= badObjects+q.server.tolerates()
	if wide {
		q.closeScope(&ns.node, f, badObjects)
	}
	suspects := 0
	if first {
		suspects = q.server.becomeSuspected(ns.name)
	}
	switch {
	case suspects >= badNamespaces+q.server.tolerates():
		level := badNamespaces
		for _, n := range q.unproven {
			level = max(level, n.failures)
		}
		q.nobody = false
		f.after = 0 // who was asked to wait does; another namespace finds out whether it is the server
		q.closeServer(f, level)
		return blamed{"server", q.server.failures, true}
	case wide:
		return blamed{"namespace", ns.failures, true}
	}
	return blamed{"object", o.failures, true}
}

// held books an answer that closes a kind of calls in a namespace.
func (q *queue) held(p place, f failure) {
	landed := q.answered(p)
	f.begun = q.begun
	l := landed.site.lane
	q.retry(&landed, f.now)
	if !l.failing() || landed.number > l.closedAt { // else the call began before that was known
		q.closeScope(&l.node, f, 1)
	}
	q.rejoin(landed.site)
}

// holding returns since when a kind of calls in a namespace is closed, the zero time for open.
func (q *queue) holding(p place) time.Time { return q.lane(p).since }

// unhold opens a kind of calls in a namespace.
func (q *queue) unhold(p place) {
	l := q.lane(p)
	l.becomeHealthy()
	q.refresh(l)
}

// answered books the end of a call that got an answer, and returns it: later calls are no longer
// hidden by those before.
func (q *queue) answered(p place) flight {
	landed := q.land(p)
	for i := range q.flights {
		f := &q.flights[i]
		f.overtaken = f.overtaken || f.number < landed.number
	}
	q.answers++
	return landed
}

// rejoin brings the places of a call in line with their scopes.
func (q *queue) rejoin(at site) {
	for i := range at.ns.lanes {
		q.refresh(&at.ns.lanes[i])
	}
	q.settle(at.obj)
	q.forget(at.ns)
}

// retry lets the scopes of a call that has ended be tried at once, if no other call tries them.
func (q *queue) retry(landed *flight, now time.Time) {
	q.server.becomeUntried(landed.number)
	q.server.becomeTriable(now)
	for _, n := range landed.site.nodes() {
		n.becomeUntried(landed.number)
		n.becomeTriable(now)
		q.schedule(n)
	}
}

// prove lets scopes be tried at once that began to fail while nothing was answered: perhaps the
// trouble was the server's, and is over.
func (q *queue) prove(now time.Time) {
	for _, n := range q.unproven {
		if n.failing() && !n.trying {
			n.becomeTriable(now)
		}
		n.becomeProven()
		q.schedule(n)
	}
	q.unproven = q.unproven[:0]
}

// closeScope books a failure of a namespace, a lane or an object.
func (q *queue) closeScope(n *node, f failure, failures int) {
	if !n.failing() && n.lane == nil {
		q.unproven = append(q.unproven, n)
	}
	n.becomeClosed(f, failures, func(failures int) time.Duration {
		if n.lane != nil {
			return q.pace.delay(failures) // a role is tried often enough for heldFor
		}
		return q.pace.patient(failures, q.luckOf(n))
	})
	q.schedule(n)
}

// luckOf returns how many failures in a row of a scope are luck: the server answers others, and
// refuses a part of these too.
func (q *queue) luckOf(n *node) luck {
	if !n.proven {
		return luck{}
	}
	share := q.server.refusing()
	if n.obj == nil {
		likely := lucky(share)
		return luck{likely: likely, possible: likely}
	}
	ns := q.namespaces[n.obj.key.namespace]
	if ns != nil {
		share = max(share, ns.refusing())
	}
	likely := lucky(share)
	return luck{likely: likely, possible: max(possible, likely)}
}

func (q *queue) closeServer(f failure, failures int) {
	if !f.everywhere { // a limit may be the tenant's: others wait no longer than without a Retry-After
		f.after = min(f.after, q.pace.longest)
	}
	q.server.becomeClosed(f, failures, func(failures int) time.Duration {
		return q.pace.delay(failures)
	})
}

// release ends the tries of a call that failed: the scopes not blamed may be tried as before.
func (q *queue) release(landed *flight) {
	for _, n := range landed.site.nodes() {
		n.becomeUntried(landed.number)
		q.schedule(n)
	}
}
