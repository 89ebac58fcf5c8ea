// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// store writes a pod's status, which shows the given items, as of the start of the read that the
// status stands for. A write too late for the cache leaves the pod unsettled, to be read again:
// nothing of the round is lost.
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
			x.cached = x.phase // UNKNOWN says nothing, and another read helps only if a list knows more
		} // or if a claim or an ack has come since the read began: the next read may know
		p.syncDue = p.syncDue || x.statusUnknown != unknown && x.emitted != phaseNone // no other event shows this change
		x.statusUnknown = unknown
	}
}

// tooLate handles a write refused in favour of something newer in the cache: the pod is read again
// at once, unless the cache shows it as believed, or the newer entry is the failure of a newer
// read.
func (c *core[S]) tooLate(p *pod, now instant) {
	c.count.refused++
	if !p.failed && !p.settled() {
		p.want = max(p.want, now-1) // a read that begins in this instant will do
	}
}

// replaced notes that the cache entry of the pod has given way to the result of a read begun at the
// given time: a status, or none. The caller notes the IDs that the status shows.
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
		return // something newer is known: nobody needs the failure
	}
	c.todo.do(action[S]{kind: actFail, uid: p.uid, at: at, err: err})
	delete(c.guard.tombstones, p.uid)
	p.failed = true
	p.asOf = max(p.asOf, at)
}

// erase deletes a pod after a read, begun at the given time, that showed nothing of it.
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

// confirm applies a read, begun at the given time, that agrees with the record and brought no
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

// regresses says that a status with the given items would take the cache back to an earlier state
// of the pod, although no read has overruled the later one.
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

// emitChanges sends Watch what the cache shows and Watch has not received. The pod must be settled:
// the cache comes first.
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
	case reassigned, p.syncDue && c.count.events == events: // a consumer that wanted the statuses waits for an event
		c.count.events++
		*c.todo.emit() = Event{
			Pod: p.uid, Namespace: p.namespace, PodName: p.name, Type: PodSync, Cause: CauseRead, Seen: c.clock.time(now),
		}
	}
	p.syncDue, p.reassigned = false, p.reassigned && !reassigned
}

// emitOnce emits an event of an item unless the event, or a later one of the same life, was emitted
// before.
func (c *core[S]) emitOnce(x *item, t EventType, unless, mask uint8) bool {
	if !x.once(unless, mask) {
		return false
	}
	c.emit(x, t)
	return true
}

// emit sends Watch an event of an item, after the writes to the cache that came before.
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

// guard is the core's copy of the times by which the cache refuses late writes. The times of
// entries are in the pods, the global time is in lists; guard has the tombstones, which outlive the
// records of their pods, and the time before which no write will come any more. The core owns
// guard, which equals the cache once all actions so far are carried out.
type guard struct {
	tombstones map[cache.UID]instant // begin of the read that did not show the pod
	floor      instant               // older tombstones have been pruned
}

// advance drops the tombstones that the global time makes needless.
func (g *guard) advance(global instant) {
	if len(g.tombstones) == 0 {
		return // nearly always
	}
	for uid, at := range g.tombstones {
		if at <= global {
			delete(g.tombstones, uid)
		}
	}
}

// prune drops the tombstones from before the given time. It reports whether there were any: if not,
// the cache has none to prune either.
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

// covered returns the cache's AsOf for the pod, entry or not.
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

// onRefused handles a write that the cache has refused and should have accepted: somebody else has
// written to the cache, as of the given time. The pod is read again, by a read that begins after
// that time.
func (c *core[S]) onRefused(uid cache.UID, has instant, now instant) {
	c.count.refused++
	p := c.ensure(uid)
	p.replaced(false, has)
	p.foreign = true
	p.want, p.notYet = max(p.want, has), has.next()
	c.review(p, now)
}

// expiry is a pod with a removed item, or with a claimed removal, and the time of the removal. Such
// IDs are remembered for the grace, and while a read is under way that began before, so that no
// late report brings them back.
type expiry struct {
	at  instant
	pod *pod
}

// maxClaimedRemovals bounds the removals in one pod that only claims have reported: a pod whose
// containers come and go for ever is read now and then.
const maxClaimedRemovals = 32

// oldestRead returns the start of the oldest read that has not ended, or now.
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

// expire forgets removed IDs that no report can bring back any more.
func (c *core[S]) expire(now instant) {
	c.expired = now
	e, ok := c.expiring.front()
	if !ok || now.sub(e.at) <= c.cfg.Grace {
		return
	}
	oldest := c.oldestRead(now)
	c.forgotten = max(c.forgotten, oldest)
	done := make(map[*pod]struct{}) // a pod has an entry for each removed ID
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
		// A read may yet overrule an unconfirmed claim. And an ID that the last list showed must be
		// remembered until a list no longer shows it: a list of differences will not mention it.
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
		if s.at.add(c.cfg.Grace) >= oldest { // a read under way may show the ID, and not overrule the claim
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
		p.want = now // a read confirms the removals, and they can go
		c.review(p, now)
	}
	if c.dirty[p.uid] == nil {
		c.forget(p, now)
	}
}

// housekeep bounds the memory of pods that are gone.
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
