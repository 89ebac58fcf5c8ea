// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"slices"
	"time"
)

// queue holds the calls to make, and decides which may be made next. A failure goes in, with the
// place of the call; who may be tried comes out. queue has no clock, makes no call and knows no
// series. Guarded by the broadcaster's lock.
//
// A failure belongs to the smallest scope that explains it. The first failure is blamed on the
// object. Objects of a namespace that fail one after the other, with no success between, are the
// namespace's trouble; namespaces likewise are the server's. A failing scope is closed, for growing
// times, and tried again by one call at a time; a success opens the scopes around it. A scope that
// fails already is no news for the scope around it: the server's trouble needs namespaces that were
// healthy.
//
//	server ── namespace ── kind of call (a role covers one and not the other)
//	              └─────── object
//
// Healthy calls go out in the order of emission, calls about one object one at a time; the last of
// several places is for a namespace without a call under way, and namespaces take turns at it.
// Calls that try failing scopes again, and calls that hang, take no place from healthy ones.
type queue struct {
	// width is the number of calls under way that neither hang nor try a failing scope.
	width int
	pace  ladder

	server     scope
	nobody     bool // the server's last failure was that nobody answers
	namespaces map[string]*namespace
	objects    map[objectKey]*object // those with a call under way, or failing
	// ready holds the lanes that may be sent, by their first ticket.
	ready indexed[*lane]
	// idle holds those of the ready lanes of whose namespace no call is under way, by their turn.
	idle indexed[*lane]
	// timers holds the failing scopes with tickets, by the time of their next try.
	timers indexed[*node]
	// unproven holds the scopes that began to fail while no other scope was answered: perhaps the
	// trouble is the server's.
	unproven []*node

	flights []flight
	// spare holds objects to be used again.
	spare []*object
	// lastStart is when the latest call began, and begun how many have.
	lastStart time.Time
	begun     int64
	waiting   int // tickets
	front     int64
	back      int64
	answers   int64 // answers of the server, whatever they said, without failures
	turn      int64 // of the calls that try a failing scope
}

func newQueue(width int, pace ladder) queue {
	return queue{
		width:      width,
		pace:       pace,
		namespaces: map[string]*namespace{},
		objects:    map[objectKey]*object{},
		ready: indexed[*lane]{
			less:  func(a, b *lane) bool { return a.line.first.seq < b.line.first.seq },
			index: func(l *lane) *int { return &l.ready },
		},
		idle: indexed[*lane]{
			less:  comesBefore,
			index: func(l *lane) *int { return &l.idle },
		},
		timers: indexed[*node]{
			less:  func(a, b *node) bool { return a.until.Before(b.until) },
			index: func(n *node) *int { return &n.index },
		},
	}
}

// push puts a ticket behind all others, or, of a series that leaves the table, before them. A
// ticket that returns keeps its place.
func (q *queue) push(t *ticket, first bool) {
	switch {
	case t.in != nil && !first:
		return
	case first:
		q.remove(t)
		q.front--
		t.seq = q.front
	case t.seq == 0:
		q.back++
		t.seq = q.back
	}
	q.waiting++
	p := t.owner.place()
	o := q.objects[p.object]
	if o != nil && (o.busy || o.failing()) {
		o.line.insert(t)
		q.schedule(&o.node)
		return
	}
	q.enter(t, p)
}

// enter puts a ticket into its lane.
func (q *queue) enter(t *ticket, p place) {
	l := q.lane(p)
	l.line.insert(t)
	q.refresh(l)
}

// remove takes a ticket out of the queue.
func (q *queue) remove(t *ticket) {
	in := t.in
	if in == nil {
		return
	}
	in.remove(t)
	q.waiting--
	switch {
	case in.lane != nil:
		q.refresh(in.lane)
		q.forget(in.lane.space)
	case in.object != nil:
		q.settle(in.object)
	}
}

// leave forgets a ticket, and the trouble of scopes without another one.
func (q *queue) leave(t *ticket) {
	q.remove(t)
	q.renew(t)
	p := t.owner.place()
	o := q.objects[p.object]
	if o != nil && o.line.n == 0 && !o.busy {
		q.schedule(&o.node)
		delete(q.objects, o.key)
	}
	ns := q.namespaces[p.namespace]
	if ns != nil && ns.tickets() == 0 && ns.flying == 0 {
		delete(q.namespaces, ns.name)
	}
}

// renew lets a ticket come behind all others when it is pushed again.
func (q *queue) renew(t *ticket) {
	t.seq = 0
	t.tried = 0
}

// move brings a ticket to the place that its owner has now.
func (q *queue) move(t *ticket) {
	if t.in != nil {
		q.remove(t)
		q.push(t, false)
	}
}

// reset forgets all trouble: every ticket may be tried once at once, those of failing objects last.
func (q *queue) reset() {
	q.server.becomeHealthy()
	q.unproven = nil
	for _, name := range slices.Sorted(maps.Keys(q.namespaces)) {
		ns := q.namespaces[name]
		for _, n := range []*node{&ns.node, &ns.lanes[0].node, &ns.lanes[1].node} {
			n.becomeHealthy()
			q.schedule(n)
		}
		q.refresh(&ns.lanes[0])
		q.refresh(&ns.lanes[1])
	}
	for _, o := range q.objectsByAge() {
		if o.failing() {
			for t := o.line.first; t != nil; t = t.next {
				q.back++
				t.seq = q.back
			}
		}
		o.becomeHealthy()
		q.settle(o)
	}
}
