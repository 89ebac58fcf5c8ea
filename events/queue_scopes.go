// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// node is a scope with its place among the timers.
type node struct {
	scope
	index int // in timers, -1 for none
	// Of these, one is set.
	ns   *namespace
	lane *lane
	obj  *object
}

// namespace is a scope with a lane for each kind of call.
type namespace struct {
	node
	name  string
	lanes [2]lane
	// flying is the number of calls under way.
	flying int
	tried  int64 // the turn in which a call here last tried the server
}

// lane holds the tickets of a kind of call in a namespace. Its own scope is closed by answers about
// the role.
type lane struct {
	node
	space *namespace
	line  line
	ready int // in queue.ready, -1 for none
	idle  int // in queue.idle, likewise
	// turn is how many calls had begun when the lane last got one, or got tickets to send.
	turn int64
}

// comesBefore is the order of turns: a lane that got a call waits for all others that wait already.
func comesBefore(a, b *lane) bool {
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return a.line.first.seq < b.line.first.seq
}

// object is a scope; the tickets of an object that fails or has a call under way stay with it.
type object struct {
	node
	key  objectKey
	busy bool // a call is under way
	line line
}

func (n *node) tickets() int {
	switch {
	case n.ns != nil:
		return n.ns.tickets()
	case n.lane != nil:
		return n.lane.line.n
	}
	return n.obj.line.n
}

// doubted reports whether something of a namespace failed since its last success.
func (ns *namespace) doubted() bool { return ns.failing() || len(ns.suspects) > 0 }

// othersFail reports whether another object of a namespace failed since the last success there.
func (q *queue) othersFail(p place) bool {
	own := p.object.String()
	return slices.ContainsFunc(q.space(p.namespace).suspects, func(other string) bool { return other != own })
}

// troubled reports whether a namespace fails and the server does not.
func (q *queue) troubled(namespace string) bool {
	ns := q.namespaces[namespace]
	return ns != nil && ns.failing() && !q.server.failing()
}

func (ns *namespace) tickets() int { return ns.lanes[0].line.n + ns.lanes[1].line.n }

func (q *queue) lane(p place) *lane {
	ns := q.space(p.namespace)
	if p.kind == callCreate {
		return &ns.lanes[0]
	}
	return &ns.lanes[1]
}

func (q *queue) space(name string) *namespace {
	ns := q.namespaces[name]
	if ns == nil {
		ns = &namespace{name: name}
		ns.node = node{index: -1, ns: ns}
		for i := range ns.lanes {
			l := &ns.lanes[i]
			l.node = node{index: -1, lane: l}
			l.space = ns
			l.ready = -1
			l.idle = -1
			l.line.lane = l
		}
		q.namespaces[name] = ns
	}
	return ns
}

func (q *queue) object(key objectKey) *object {
	o := q.objects[key]
	if o != nil {
		return o
	}
	last := len(q.spare) - 1
	if last < 0 {
		o = &object{}
	} else {
		o = q.spare[last]
		q.spare = q.spare[:last]
	}
	*o = object{key: key}
	o.node = node{index: -1, obj: o}
	o.line.object = o
	q.objects[key] = o
	return o
}

// site holds the scopes of a place, the server apart. A call looks them up once: a map of structs
// of strings costs more than all that is booked in them.
type site struct {
	ns   *namespace
	lane *lane
	obj  *object
}

func (s site) nodes() [3]*node { return [...]*node{&s.ns.node, &s.lane.node, &s.obj.node} }

// refresh puts a lane among the ready ones, or takes it out.
func (q *queue) refresh(l *lane) {
	ready := l.line.n > 0 && !l.failing() && !l.space.failing()
	if ready && l.ready < 0 {
		l.turn = q.begun
	}
	q.ready.set(l, ready)
	q.idle.set(l, ready && l.space.flying == 0)
	q.schedule(&l.node)
	q.schedule(&l.space.node)
}

// schedule puts a failing scope with tickets among the timers.
func (q *queue) schedule(n *node) {
	due := n.failing() && !n.trying && n.tickets() > 0
	q.timers.set(n, due)
}

// forget drops a namespace about which nothing is known.
func (q *queue) forget(ns *namespace) {
	quiet := !ns.doubted() && !ns.lanes[0].failing() && !ns.lanes[1].failing()
	turns := q.server.failing() && ns.tried > 0
	if quiet && !turns && ns.flying == 0 && ns.tickets() == 0 {
		delete(q.namespaces, ns.name)
	}
}

// settle lets the tickets of a healthy, idle object into their lanes, and forgets it.
func (q *queue) settle(o *object) {
	q.schedule(&o.node)
	if o.busy || o.failing() {
		return
	}
	q.unpark(o)
	q.drop(o)
}

// drop forgets an object about which nothing is known. One that failed may still be among the
// unproven.
func (q *queue) drop(o *object) {
	delete(q.objects, o.key)
	if len(q.spare) < 3*q.width && len(q.unproven) == 0 {
		q.spare = append(q.spare, o)
	}
}

func (q *queue) unpark(o *object) {
	for t := o.line.first; t != nil; t = o.line.first {
		o.line.remove(t)
		q.enter(t, t.owner.place())
	}
	q.schedule(&o.node)
}

// objectsByAge returns the objects with a call under way, or failing, in the order of their first
// tickets; at first those without any, in no order.
func (q *queue) objectsByAge() []*object {
	first := func(o *object) int64 {
		if o.line.first == nil {
			return math.MinInt64
		}
		return o.line.first.seq
	}
	return slices.SortedFunc(maps.Values(q.objects), func(a, b *object) int {
		return cmp.Compare(first(a), first(b))
	})
}

// settleAll lets the tickets of idle objects into their lanes, each to the place that its number
// gives it there.
func (q *queue) settleAll() {
	for _, o := range q.objects {
		if !o.busy {
			q.unpark(o)
		}
	}
}

// closed returns the number of failing scopes by kind.
func (q *queue) closed() map[string]int {
	by := map[string]int{
		"server":    0,
		"namespace": 0,
		"call":      0,
		"object":    0,
	}
	count := func(s *scope, kind string) {
		if s.failing() {
			by[kind]++
		}
	}
	count(&q.server, "server")
	for _, ns := range q.namespaces {
		count(&ns.scope, "namespace")
		for i := range ns.lanes {
			count(&ns.lanes[i].scope, "call")
		}
	}
	for _, o := range q.objects {
		count(&o.scope, "object")
	}
	return by
}
