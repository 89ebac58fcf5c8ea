// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// effects are the outcome of a turn of the core: actions for the executor, counts for metrics, and
// reports about the node, at their pace. The core writes them, and the book, which is the only way
// to cache and Watch: the other rooms return actions. Nothing decides by an effect.
type effects[S any] struct {
	todo[S]

	// clock gives the times that events carry.
	clock clock

	// count are the counts since the start.
	count counters

	// reports paces the reports about the node.
	reports reporter
}

// add counts.
func (f *effects[S]) add(kind counter, n int) {
	f.count[kind] += n
}

// paced makes a report about the node, if the pace of its reason allows.
func (f *effects[S]) paced(r Report, now instant) {
	if made, ok := f.reports.admit(r, now); ok {
		f.report(made)
	}
}

// event sends Watch an event of an ID, in its phase.
func (f *effects[S]) event(x *item, t EventType, now instant) {
	e := f.about(x.pod, t, now)
	e.ID = x.id
	e.ContainerName = x.name
	e.Kind = x.kind
	if x.claimed < x.phase {
		return
	}
	e.Cause = x.cause
	if x.stamp != 0 {
		e.Stamp = time.Unix(0, x.stamp)
	}
}

// sync sends Watch a PodSync.
func (f *effects[S]) sync(p *pod, now instant) {
	f.about(p, PodSync, now)
}

// about adds an event of a pod for Watch.
func (f *effects[S]) about(p *pod, t EventType, now instant) *Event {
	f.add(countEvents, 1)
	e := f.emit()
	e.Pod = p.uid
	e.Namespace = p.namespace
	e.PodName = p.name
	e.Type = t
	e.Seen = f.clock.time(now)
	return e
}

// missed counts the changes that no event announced.
func (f *effects[S]) missed(v *verdict) {
	f.add(countMissedStarts, v.starts)
	f.add(countMissedExits, v.exits)
	f.add(countMissedUnknowns, v.unknowns)
	f.add(countMissedCreations, v.creations)
	f.add(countMissedRemovals, v.removals)
	f.add(countUnheard, v.unheard)
}

// advance moves the cache's global time; not if zero.
func (f *effects[S]) advance(global instant) {
	if global != 0 {
		f.do(action[S]{kind: actAdvance, at: global})
	}
}

// keep stores the statuses of a read whose phases are those of the entry, known from later.
func (f *effects[S]) keep(p *pod, r reading[S], asOf instant) {
	f.do(action[S]{
		kind:     actStore,
		uid:      p.uid,
		at:       asOf,
		content:  p.read,
		status:   r.status,
		replaces: true,
		silent:   true,
		excused:  r.excused,
		before:   r.before,
	})
}

// peek starts a peek of a pod, which asks for the given items.
func (f *effects[S]) peek(p *pod, asked []Item, now instant) {
	f.add(countPeeks, 1)
	f.do(action[S]{
		kind: actInspect,
		uid:  p.uid,
		at:   now,
		read: &podRead{
			ref:    p.ref(asked),
			listed: true,
			peek:   true,
		},
	})
}
