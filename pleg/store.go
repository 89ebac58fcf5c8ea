// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// store writes a pod's status, which shows the given items, as of the start of the read that it
// stands for. A write that is too late for the cache leaves the pod unsettled, so that it is read
// again: nothing of the round is lost.
func (c *core[S]) store(p *pod, status *S, shows []Item, at, now instant) {
	if !c.accepts(p, at) {
		c.tooLate(p, now)
		return
	}
	c.todo.do(action[S]{kind: actStore, uid: p.uid, at: at, status: status, replaces: p.hasStatus || p.foreign})
	delete(c.guard.tombstones, p.uid)
	p.replaced(true, at)
	for i, it := range shows {
		x := c.itemOf(p, i, it.ID)
		if x == nil || x.pod != p {
			p.foreignID = p.foreignID || x != nil
			continue
		}
		x.cached = it.Phase
		unknown := it.Phase == PhaseUnknown
		if unknown && !((x.byClaim || x.confirmed > at) && p.changedAt > at) {
			x.cached = x.phase // it says nothing, and asking again helps only if a list knows more
		} // or if a claim or an ack has come since the read began: the next read may know
		p.syncDue = p.syncDue || x.statusUnknown != unknown && x.emitted != phaseNone // nothing else tells of that
		x.statusUnknown = unknown
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
	p.reassigned, p.foreignID = p.reassigned || p.foreignID, false
	p.hasStatus, p.foreign, p.failed, p.backoff = hasStatus, false, false, ladder{}
	p.answered(at)
	p.asOf = max(p.asOf, at)
}

// storeError records that a read begun at the given time failed.
func (c *core[S]) storeError(p *pod, err error, at instant) {
	if !c.accepts(p, at) {
		c.count.refused++
		return // something newer is known: the failure matters to nobody
	}
	c.todo.do(action[S]{kind: actFail, uid: p.uid, at: at, err: err})
	delete(c.guard.tombstones, p.uid)
	p.failed = true
	p.asOf = max(p.asOf, at)
}

// erase deletes a pod of which a read begun at the given time showed nothing.
func (c *core[S]) erase(p *pod, at, now instant) {
	if !c.accepts(p, at) {
		c.tooLate(p, now)
		return
	}
	c.todo.do(action[S]{kind: actDelete, uid: p.uid, at: at})
	if at > c.lists.global {
		c.guard.tombstones[p.uid] = at
	}
	p.replaced(false, at)
}

// confirm applies a read, begun at the given time, that agrees with what is known and brought no
// statuses.
func (c *core[S]) confirm(p *pod, at, now instant) {
	switch {
	case p.live() == 0:
		c.erase(p, at, now)
	case p.settled() && !p.statusUnknown() && !p.failed && p.force == 0:
		c.todo.observe(p.uid, at)
		p.asOf = max(p.asOf, at)
	}
}

// regresses says that a status which shows the given items would take back what the cache shows of
// a pod, without a read having overruled it.
func (c *core[S]) regresses(p *pod, shows []Item) bool {
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
		if it.Phase != PhaseUnknown && it.Phase < x.phase && (it.Phase < x.cached || x.cached == PhaseUnknown && !x.statusUnknown) {
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

// emitChanges hands what the cache shows and Watch has not been told to Watch. The pod must be
// settled: the cache comes first.
func (c *core[S]) emitChanges(p *pod, now instant) {
	sync, events := false, c.count.events
	var last *item
	for _, x := range p.items {
		if x.emitted == x.phase {
			continue
		}
		last = x
		before := x.emitted
		if before == phaseNone {
			before = PhaseUnknown
		}
		x.emitted = x.phase
		switch {
		case x.phase < before:
			sync = true
		case x.phase == PhaseRunning:
			sync = !c.emitOnce(x, ContainerStarted, maskStarted|maskDied|maskRemoved, maskStarted) || sync
		case x.phase == PhaseExited:
			sync = !c.emitOnce(x, ContainerDied, maskDied|maskRemoved, maskDied) || sync
		case x.phase == PhaseRemoved:
			if before < PhaseExited {
				c.emitOnce(x, ContainerDied, maskDied|maskRemoved, maskDied)
			}
			sync = !c.emitOnce(x, ContainerRemoved, maskRemoved, maskRemoved) || sync
		}
	}
	reassigned := p.reassigned && p.force == 0
	switch {
	case sync:
		c.emit(last, PodSync)
	case reassigned, p.syncDue && c.count.events == events: // whoever wanted the statuses waits to hear of them
		c.count.events++
		*c.todo.emit() = Event{
			Pod: p.uid, Namespace: p.namespace, PodName: p.name, Type: PodSync, Cause: CauseRead, Seen: c.clock.time(now),
		}
	}
	p.syncDue, p.reassigned = false, p.reassigned && !reassigned
}

// emitOnce emits an event of an item unless it, or one that comes after it in a life, was emitted
// before.
func (c *core[S]) emitOnce(x *item, t EventType, unless, mask uint8) bool {
	if !x.once(unless, mask) {
		return false
	}
	c.emit(x, t)
	return true
}

// emit tells Watch of an item, once the cache has what was written to it before.
func (c *core[S]) emit(x *item, t EventType) {
	c.count.events++
	e := c.todo.emit()
	e.Pod, e.Namespace, e.PodName = x.pod.uid, x.pod.namespace, x.pod.name
	e.Type, e.Kind, e.Cause, e.Seen = t, x.kind, x.cause, c.clock.time(x.since)
	if x.stamp != 0 {
		e.Stamp = time.Unix(0, x.stamp)
	}
	if t != PodSync {
		e.ID, e.ContainerName = x.id, x.name
	}
}

// guard is what the core knows of the times by which the cache refuses what comes too late. The
// times of entries are the pods' own, the global time is that of the lists; what is left are the
// tombstones, which outlive the records of their pods, and the time before which no write may come
// any more. It belongs to the core, and is as the cache will be once all actions so far have been
// carried out.
type guard struct {
	tombstones map[cache.UID]instant // the tombstones: a read begun then did not show the pod
	floor      instant               // older tombstones have been pruned
}

// advance forgets the tombstones that the global time makes needless.
func (g *guard) advance(global instant) {
	if len(g.tombstones) == 0 {
		return // as it is nearly always
	}
	for uid, at := range g.tombstones {
		if at <= global {
			delete(g.tombstones, uid)
		}
	}
}

// prune forgets the tombstones from before that time. It reports whether there were any tombstones
// at all: if not, there is nothing to prune in the cache either.
func (g *guard) prune(before instant) bool {
	if len(g.tombstones) == 0 {
		return false
	}
	g.floor = max(g.floor, before)
	for uid, at := range g.tombstones {
		if at < g.floor {
			delete(g.tombstones, uid)
		}
	}
	return true
}

// covered returns what the cache's AsOf returns for the pod, entry or not.
func (c *core[S]) covered(p *pod) instant {
	if p.hasEntry() {
		return c.asOf(p)
	}
	return max(c.lists.global, c.guard.tombstones[p.uid])
}

// accepts says that the cache takes a write for the pod by a read begun at that time.
func (c *core[S]) accepts(p *pod, at instant) bool {
	return at >= c.covered(p) && (p.hasEntry() || at >= c.guard.floor)
}

// onRefused is told that the cache has refused a write that it was to take: somebody else has
// written to it, as of the given time. What is there is not ours: it is read again, by a read that
// begins after that time.
func (c *core[S]) onRefused(uid cache.UID, has instant, now instant) {
	c.count.refused++
	p := c.ensure(uid)
	p.replaced(false, has)
	p.foreign = true
	p.want, p.notYet = max(p.want, has), has.next()
	c.review(p, now)
}

// expiry is a pod that has a removed item, or a suspect said to be removed, since a time. Such IDs
// are remembered for the grace, and while a read is under way that began before, so that nothing
// late brings them back.
type expiry struct {
	at  instant
	pod *pod
}

// maxClaimedRemovals bounds the removals of one pod that only claims have told of: a pod whose
// containers come and go for ever is read now and then.
const maxClaimedRemovals = 32

// oldestRead returns the start of the oldest read whose result is still to come, or now.
func (c *core[S]) oldestRead(now instant) instant {
	oldest := now
	if c.lists.inflight {
		oldest = min(oldest, c.lists.began)
	}
	for _, f := range c.inflight {
		oldest = min(oldest, f.began)
	}
	if c.queues[inListed].len() > 0 {
		oldest = min(oldest, c.lists.applied)
	}
	return oldest
}

// expire forgets removed IDs that nothing can bring back any more.
func (c *core[S]) expire(now instant) {
	c.expired = now
	e, ok := c.expiring.front()
	if !ok || now.sub(e.at) <= c.cfg.Grace {
		return
	}
	oldest := c.oldestRead(now)
	c.forgotten = max(c.forgotten, oldest)
	done := make(map[*pod]struct{}) // a pod has an entry for each of its removed IDs
	for ok && now.sub(e.at) > c.cfg.Grace && e.at < oldest {
		c.expiring.pop()
		if _, again := done[e.pod]; !again {
			done[e.pod] = struct{}{}
			c.expirePod(e.pod, oldest, now)
		}
		e, ok = c.expiring.front()
	}
}

func (c *core[S]) expirePod(p *pod, oldest, now instant) {
	done := func(at instant) bool { return now.sub(at) > c.cfg.Grace && at < oldest }
	kept, claimedRemovals := false, 0
	c.looks += uint64(len(p.items))
	p.items = slices.DeleteFunc(p.items, func(x *item) bool {
		if x.phase != PhaseRemoved {
			return false
		}
		// A claim that no read has confirmed may yet be overruled. And what the last list showed
		// must be remembered until a list no longer shows it: one that tells only differences will
		// say nothing of it.
		needed := x.byClaim || x.emitted != PhaseRemoved || x.cached != phaseNone || x.listed != phaseNone
		if needed || !done(x.confirmed) {
			kept = kept || needed
			if x.byClaim {
				claimedRemovals++
			}
			return false
		}
		delete(c.index, x.id)
		return true
	})
	for i, x := range p.items {
		x.at = i
	}
	for id, s := range p.unconfirmed {
		if s.phase != PhaseRemoved {
			continue
		}
		if s.at.add(c.cfg.Grace) >= oldest { // a read under way may show it, and not overrule that
			kept = true
			continue
		}
		delete(p.unconfirmed, id)
		c.unconfirmed--
	}
	if kept {
		c.unexpired[p.uid] = p
	} else {
		delete(c.unexpired, p.uid)
	}
	if claimedRemovals > maxClaimedRemovals && p.want == 0 {
		p.want = now // a read confirms them, and they can go
		c.review(p, now)
	}
	if c.dirty[p.uid] == nil {
		c.forget(p, now)
	}
}

// housekeep bounds what is remembered of pods that are gone.
func (c *core[S]) housekeep(now instant) {
	if now.sub(c.pruned) < c.cfg.Grace {
		return
	}
	c.pruned = now
	oldest := c.oldestRead(now)
	c.forgotten = max(c.forgotten, oldest)
	if c.guard.prune(oldest) {
		c.todo.do(action[S]{kind: actPrune, at: oldest})
	}
	for id, s := range c.unowned {
		if s.phase == PhaseRemoved && s.at.add(c.cfg.Grace) < oldest {
			delete(c.unowned, id)
		}
	}
	for _, p := range inOrder(c.unexpired) {
		c.expirePod(p, oldest, now)
	}
	c.todo.do(action[S]{kind: actDropOldest, n: int32(min(len(c.pods)+c.cfg.OwedMax, math.MaxInt32))})
}
