// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// store writes a pod's status, which shows the given items, as of the start of the read that it
// stands for. A write that is too late for the cache leaves the pod unsettled, so that it is read
// again: nothing of the round is lost.
func (c *core[S]) store(p *pod, status *S, shows []Item, at, now instant) {
	if !c.takes(p, at) {
		c.tooLate(p, now)
		return
	}
	c.todo.do(action[S]{kind: actStore, uid: p.uid, at: at, status: status, replaces: p.hasStatus || p.foreign})
	delete(c.guard.gone, p.uid)
	p.replaced(true, at)
	for i, it := range shows {
		x := c.itemOf(p, i, it.ID)
		if x == nil || x.pod != p {
			p.alien = p.alien || x != nil
			continue
		}
		x.cached = it.Phase
		blank := it.Phase == PhaseUnknown
		if blank && !((x.byClaim || x.sure > at) && p.moved > at) {
			x.cached = x.phase // it says nothing, and asking again helps only if a list knows more
		} // or if a claim or an ack has come since the read began: the next read may know
		p.answer = p.answer || x.blank != blank && x.told != phaseNone // nothing else tells of that
		x.blank = blank
	}
}

// tooLate is told of a write that was not made, because something newer is in the cache: the pod is
// read again at once if that is not how it is known to be, and no failure of a newer read.
func (c *core[S]) tooLate(p *pod, now instant) {
	c.count.refused++
	if !p.failed && !p.settled() {
		p.want = max(p.want, now-1) // one that begins in this instant will do
	}
}

// replaced notes that what the cache had of the pod has given way to what a read begun at the given
// time showed: a status, or that there is none. What that status shows is still to be noted.
func (p *pod) replaced(hasStatus bool, at instant) {
	for _, x := range p.items {
		x.cached = phaseNone
	}
	p.lost, p.alien = p.lost || p.alien, false
	p.hasStatus, p.foreign, p.failed, p.backoff = hasStatus, false, false, ladder{}
	p.answered(at)
	p.asOf = max(p.asOf, at)
}

// storeError records that a read begun at the given time failed.
func (c *core[S]) storeError(p *pod, err error, at instant) {
	if !c.takes(p, at) {
		c.count.refused++
		return // something newer is known: the failure matters to nobody
	}
	c.todo.do(action[S]{kind: actFail, uid: p.uid, at: at, err: err})
	delete(c.guard.gone, p.uid)
	p.failed = true
	p.asOf = max(p.asOf, at)
}

// erase deletes a pod of which a read begun at the given time showed nothing.
func (c *core[S]) erase(p *pod, at, now instant) {
	if !c.takes(p, at) {
		c.tooLate(p, now)
		return
	}
	c.todo.do(action[S]{kind: actDelete, uid: p.uid, at: at})
	if at > c.lists.global {
		c.guard.gone[p.uid] = at
	}
	p.replaced(false, at)
}

// confirm applies a read, begun at the given time, that agrees with what is known and brought no
// statuses.
func (c *core[S]) confirm(p *pod, at, now instant) {
	switch {
	case p.live() == 0:
		c.erase(p, at, now)
	case p.settled() && !p.blank() && !p.failed && p.force == 0:
		c.todo.observe(p.uid, at)
		p.asOf = max(p.asOf, at)
	}
}

// takesBack says that a status which shows the given items would take back what the cache shows of
// a pod, without a read having overruled it.
func (c *core[S]) takesBack(p *pod, shows []Item) bool {
	c.marks++
	for i, it := range shows {
		x := c.itemOf(p, i, it.ID)
		if x == nil || x.pod != p {
			continue
		}
		x.mark = c.marks
		if x.cached == phaseNone {
			if x.phase == PhaseRemoved {
				return true
			}
			continue
		}
		if it.Phase != PhaseUnknown && it.Phase < x.phase && (it.Phase < x.cached || x.cached == PhaseUnknown && !x.blank) {
			return true
		}
	}
	for _, x := range p.items {
		if x.mark != c.marks && x.cached != phaseNone && x.phase != PhaseRemoved {
			return true
		}
	}
	return false
}

// tell hands what the cache shows and Watch has not been told to Watch. The pod must be settled:
// the cache comes first.
func (c *core[S]) tell(p *pod, now instant) {
	sync, events := false, c.count.events
	var last *item
	for _, x := range p.items {
		if x.told == x.phase {
			continue
		}
		last = x
		before := x.told
		if before == phaseNone {
			before = PhaseUnknown
		}
		x.told = x.phase
		switch {
		case x.phase < before:
			sync = true
		case x.phase == PhaseRunning:
			sync = !c.tellOnce(x, ContainerStarted, maskStarted|maskDied|maskRemoved, maskStarted) || sync
		case x.phase == PhaseExited:
			sync = !c.tellOnce(x, ContainerDied, maskDied|maskRemoved, maskDied) || sync
		case x.phase == PhaseRemoved:
			if before < PhaseExited {
				c.tellOnce(x, ContainerDied, maskDied|maskRemoved, maskDied)
			}
			sync = !c.tellOnce(x, ContainerRemoved, maskRemoved, maskRemoved) || sync
		}
	}
	lost := p.lost && p.force == 0
	switch {
	case sync:
		c.emit(c.event(last, PodSync))
	case lost, p.answer && c.count.events == events: // whoever wanted the statuses waits to hear of them
		c.emit(Event{
			Pod: p.uid, Namespace: p.namespace, PodName: p.name, Type: PodSync, Cause: CauseRead, Seen: c.clock.time(now),
		})
	}
	p.answer, p.lost = false, p.lost && !lost
}

// tellOnce emits an event of an item unless it, or one that comes after it in a life, was emitted
// before.
func (c *core[S]) tellOnce(x *item, t EventType, unless, mask uint8) bool {
	if !x.once(unless, mask) {
		return false
	}
	c.emit(c.event(x, t))
	return true
}

func (c *core[S]) event(x *item, t EventType) Event {
	e := Event{
		Pod: x.pod.uid, Namespace: x.pod.namespace, PodName: x.pod.name, ContainerName: x.name,
		Type: t, ID: x.id, Kind: x.kind, Cause: x.cause, Seen: c.clock.time(x.since),
	}
	if x.stamp != 0 {
		e.Stamp = time.Unix(0, x.stamp)
	}
	if t == PodSync {
		e.ID, e.ContainerName = "", ""
	}
	return e
}

// emit tells Watch, once the cache has what was written to it before.
func (c *core[S]) emit(e Event) {
	c.count.events++
	c.todo.tell(e)
}
