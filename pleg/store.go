// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"time"
)

// store makes a report of a pod the state of the pod: in the cache, in the record and on Watch at
// once. No other function changes any of them. There are three callers: a read of the statuses, a
// read showing nothing of the pod (status is nil), and a payload that dominates. At is the begin of
// the read, unless a list begun later has shown the same; 0 for a payload, which keeps the time.
func (c *core[S]) store(p *pod, status *S, shows []Item, at, now instant) {
	began := at // of a read of statuses, unlike the later list and the payload
	if at == 0 {
		at = c.asOf(p)
	}
	if p.listedAt > at && sameItems(p.listed, shows) {
		at = p.listedAt
	}
	if status != nil {
		c.todo.do(action[S]{kind: actStore, uid: p.uid, at: at, status: status, replaces: p.entry != noEntry})
	} else {
		c.todo.do(action[S]{kind: actDelete, uid: p.uid, at: at})
		shows, c.deleted = nil, true
	}
	last := c.lastRead(p)
	if !p.differs() && c.lists.applied != 0 {
		p.listed, p.listedAt, p.agreed = p.shownItems(), c.lists.applied, c.lists.applied
	}
	c.show(p, shows, last, began, now)
	p.asOf = at
	if p.entry = noEntry; status != nil {
		p.entry = statusEntry
	}
	if p.differs() {
		c.compare(p, p.listed, p.listedAt)
	}
}

// lastRead returns the begin of the last read in agreement with the record.
func (c *core[S]) lastRead(p *pod) instant {
	read, listed := p.asOf, c.lists.applied
	if p.entry == failedEntry {
		read = 0 // the begin of the failed read
	}
	if p.differs() {
		listed = p.agreed
	}
	return max(read, listed)
}

// show moves the items of a pod to their phases in a report, and sends the events. Last is the
// result of core.lastRead, began the begin of a read of the statuses, or 0.
func (c *core[S]) show(p *pod, shows []Item, last, began, now instant) {
	c.marks++
	events, sync := c.count.events, false
	for i, it := range shows {
		if !it.valid() {
			continue
		}
		x := c.find(p, i, it.ID)
		if x == nil {
			x = c.create(p, it, now)
		} else if x.mark == c.marks {
			continue // shown twice: the first counts
		}
		changed, sent := (x.shown == PhaseUnknown) != (it.Phase == PhaseUnknown), c.count.events
		x.mark, x.shown = c.marks, it.Phase
		if it.Name != "" {
			x.name = it.Name
		}
		if c.move(x, it.Phase, last, now) || changed && c.count.events == sent {
			sync = true // no other event shows this change
		}
	}
	kept := p.items[:0]
	for _, x := range p.items {
		if x.mark == c.marks {
			kept = append(kept, x)
			continue
		}
		sync = c.move(x, PhaseRemoved, last, now) || sync
		c.drop(x)
	}
	clear(p.items[len(kept):])
	p.items = kept
	if forced := p.force != 0 && began > p.force; forced {
		p.force = 0
		sync = sync || c.count.events == events
	}
	if sync {
		c.count.events++
		*c.todo.emit() = Event{Pod: p.uid, Namespace: p.namespace, PodName: p.name, Type: PodSync, Seen: c.clock.time(now)}
	}
}

// create adds an ID shown by a report for the first time.
func (c *core[S]) create(p *pod, it Item, now instant) *item {
	x := &item{id: it.ID, pod: p, kind: it.Kind, phase: phaseNone, shown: phaseNone}
	c.takeEarly(p, it.ID, now)
	for e := range p.expectations(it.ID) {
		x.announce(e)
	}
	if other := c.index[it.ID]; other != nil { // reads show the ID in two pods, each of which has an item
		x.claimed, x.cause, x.stamp = other.claimed, other.cause, other.stamp
	}
	p.items, c.index[it.ID] = append(p.items, x), x
	return x
}

// drop forgets an ID no longer shown by a report.
func (c *core[S]) drop(x *item) {
	for e := range x.pod.expectations(x.id) {
		e.stored = false // a read confirms
	}
	if c.index[x.id] == x {
		delete(c.index, x.id)
		for _, p := range c.pods {
			if c.items() <= len(c.index) {
				break
			} else if y := c.find(p, 0, x.id); y != nil && y != x { // reads show the ID in two pods
				c.index[x.id] = y
			}
		}
	}
}

// find returns the item of an ID in a pod, or nil. Hint is the probable index.
func (c *core[S]) find(p *pod, hint int, id string) *item {
	if hint < len(p.items) && p.items[hint].id == id {
		return p.items[hint]
	}
	if len(p.items) <= manyIDs || c.items() > len(c.index) { // few, or reads show some ID in two pods
		if i := slices.IndexFunc(p.items, func(x *item) bool { return x.id == id }); i >= 0 {
			return p.items[i]
		}
	} else if x := c.index[id]; x != nil && x.pod == p {
		return x
	}
	return nil
}

// items returns the number of items of all pods.
func (c *core[S]) items() (n int) {
	for _, phases := range c.phases {
		for _, k := range phases {
			n += k
		}
	}
	return n
}

// move takes an item to its phase in a report, and sends the event. Sync reports whether Watch is
// due a PodSync instead.
func (c *core[S]) move(x *item, phase Phase, last, now instant) (sync bool) {
	before := x.phase
	if phase == before || phase == PhaseUnknown && before != phaseNone {
		return false
	}
	c.tally(x, -1)
	x.phase = phase
	c.tally(x, +1)
	if before != phaseNone && phase < before {
		if e := x.pod.expectation(x.id, CauseClaim); e == nil || !e.stored {
			c.count.regressions++
		} // else the read overrules a payload: core.resolve counts
		return true
	}
	if before != PhaseUnknown { // else nobody knows when the ID came so far
		c.addCandidate(x, phase, last, now)
	}
	switch phase {
	case PhaseRunning:
		return !c.emitOnce(x, ContainerStarted, sentStarted|sentDied|sentRemoved, sentStarted, now)
	case PhaseExited:
		return !c.emitOnce(x, ContainerDied, sentDied|sentRemoved, sentDied, now)
	case PhaseRemoved:
		if before != PhaseExited {
			c.emitOnce(x, ContainerDied, sentDied|sentRemoved, sentDied, now)
		}
		return !c.emitOnce(x, ContainerRemoved, sentRemoved, sentRemoved, now)
	}
	return false
}

// The events of one life, for item.sent.
const (
	sentStarted uint8 = 1 << iota
	sentDied
	sentRemoved
)

// emitOnce sends an event unless any of the given was sent before, and reports whether it was sent.
func (c *core[S]) emitOnce(x *item, t EventType, unless, sends uint8, now instant) bool {
	if x.sent&unless != 0 {
		return false
	}
	x.sent |= sends
	c.count.events++
	e := c.todo.emit()
	e.Pod, e.Namespace, e.PodName, e.ID, e.ContainerName = x.pod.uid, x.pod.namespace, x.pod.name, x.id, x.name
	e.Type, e.Kind, e.Seen = t, x.kind, c.clock.time(now)
	if x.claimed >= x.phase {
		e.Cause = x.cause
		if x.stamp != 0 {
			e.Stamp = time.Unix(0, x.stamp)
		}
	}
	return true
}

// tally counts the items by kind and phase, and the pods with a ready sandbox.
func (c *core[S]) tally(x *item, by int) {
	if x.phase >= PhaseRemoved {
		return
	}
	c.phases[x.kind][x.phase] += by
	if x.kind == Sandbox && x.phase == PhaseRunning {
		if x.pod.ready += int32(by); by > 0 && x.pod.ready == 1 || by < 0 && x.pod.ready == 0 {
			c.running += by
		}
	}
}

// offer stores the payload of a claim if the payload dominates: the cache holds a status from a
// read, and the payload shows exactly the IDs of the status, none in an earlier phase, and
// everything expected of the pod. The payload makes nothing fresh: the time of the entry stays. A
// later read decides; see core.contradicts for a read that shows less.
func (c *core[S]) offer(p *pod, pc *podClaims[S], now instant) {
	if pc.status == nil || p.entry != statusEntry || !p.unmet() {
		return
	}
	c.marks++
	met := 0
	for i, it := range pc.payload {
		x := c.find(p, i, it.ID)
		if x == nil || x.mark == c.marks || x.shown == PhaseUnknown || it.Phase < x.phase || it.Phase > PhaseExited {
			return
		}
		for e := range p.expectations(it.ID) {
			if e.phase > it.Phase {
				return
			}
			met++
		}
		x.mark = c.marks
	}
	if len(pc.payload) != len(p.items) || met < len(p.expected) {
		return
	}
	status, err := pc.status()
	if err != nil || status == nil {
		return
	}
	c.count.dominated++
	for i := range p.expected {
		p.expected[i].stored = true
	}
	c.store(p, status, pc.payload, 0, now)
}

// contradicts returns when the first and the last of the claims contradicted by a read were made;
// zero if the read shows no less than the status. A payload has brought the difference. First
// leaves out the effects of the agent's own calls, and states that the runtime does not know: a
// read begun later is right.
func (c *core[S]) contradicts(p *pod, shows []Item) (first, last instant) {
	for i, it := range shows {
		x := c.find(p, i, it.ID)
		if x == nil || it.Phase >= x.phase {
			continue
		}
		for e := range p.expectations(it.ID) {
			if known := it.Phase != PhaseUnknown; known || e.stored {
				last = max(last, e.at)
				if known && e.cause == CauseClaim && (first == 0 || e.at < first) {
					first = e.at
				}
			}
		}
	}
	return first, last
}
