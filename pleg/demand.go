// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// onDemand takes the cache's waiters: each wants a read of its pod begun after a time.
func (c *core[S]) onDemand(demand map[cache.UID]time.Time, now instant) {
	uids := make([]cache.UID, 0, len(demand))
	for uid := range demand {
		uids = append(uids, uid)
	}
	slices.Sort(uids) // so that a history replays the same way
	for _, uid := range uids {
		t := c.clock.instant(demand[uid])
		if p := c.pods[uid]; p != nil && p.asOf > t && !p.hasStatus && c.covered(p) <= t {
			t = max(p.asOf, p.read) // the cache has pruned the tombstone that would have told when the pod was found gone
		}
		c.wantRead(uid, t, now)
	}
}

// wantRead wants a read of the pod that begins after t.
func (c *core[S]) wantRead(uid cache.UID, t, now instant) {
	p := c.ensure(uid)
	p.want = max(p.want, t)
	if p.failed {
		p.notYet = min(p.notYet, t.next())
	}
	c.review(p, now)
}

// request is what embedders ask for with RequestRelist and RequestReinspect.
type request struct {
	uid     cache.UID
	inspect bool
}

// onRequest takes such a request, which was made before now.
func (c *core[S]) onRequest(r request, now instant) {
	switch {
	case r.inspect:
		p := c.ensure(r.uid)
		p.force = max(p.force, now)
		c.review(p, now)
	case r.uid == "":
		c.sched.ask(now, true)
	default:
		c.wantRead(r.uid, now, now)
	}
}

// review looks at a pod after anything has changed about it: tells Watch what the cache shows,
// settles rounds, and sees to it that the pod is read if it must be.
func (c *core[S]) review(p *pod, now instant) {
	c.looks += uint64(len(p.items))
	settled := p.settled()
	if settled {
		c.tell(p, now)
		if p.force == 0 && !p.failed && !p.blank() {
			p.listing = nil // else the statuses are to be read all the same
		}
	}
	if !p.unsure() {
		p.settle()
	}
	if p.want != 0 && c.asOf(p) > p.want {
		p.want = 0
	}
	c.settleRounds(p, now)
	going := !p.unsure() && c.connected() && p.goesAway()
	if !going {
		p.going = ladder{}
	} else if !p.going.climbed() {
		p.notYet = p.going.climb(now, now, c.firstLook(), c.cfg.RelistMax)
	}
	if !p.unsure() && !going && !p.asked() {
		delete(c.open, p.uid)
		p.notYet = 0
		c.forget(p)
		return
	}
	c.open[p.uid] = p
	c.enqueue(p, now)
}

// reviewLater has a pod that is not the one that a report is about reviewed once all of the report
// has been applied: a report may take thousands of IDs from it, and a review looks at all it has.
func (c *core[S]) reviewLater(p *pod) {
	if !p.affected {
		p.affected = true
		c.affected = append(c.affected, p)
	}
}

// reviewAffected does so.
func (c *core[S]) reviewAffected(now instant) {
	for i, p := range c.affected {
		c.affected[i] = nil
		p.affected = false
		c.review(p, now)
	}
	c.affected = c.affected[:0]
}

// firstLook returns how long after a sandbox was found not ready it is first looked at again: some
// runtimes never tell of its end, and who stops a pod mostly removes it soon.
func (c *core[S]) firstLook() time.Duration { return max(c.cfg.RelistBase/10, 1) }

// forget drops the record of a pod of which nothing is known and nothing wanted.
func (c *core[S]) forget(p *pod) {
	if len(p.items) == 0 && len(p.suspects) == 0 && len(p.contested) == 0 && !p.foreign && !p.hasStatus && !c.reads(p) && !p.asked() && p.own.calls == 0 && c.pods[p.uid] == p {
		delete(c.pods, p.uid)
		delete(c.touched, p.uid)
		delete(c.leftover, p.uid)
		delete(c.open, p.uid)
	}
}

// nextRead returns when the pod is to be read next.
func (c *core[S]) nextRead(p *pod) instant {
	at := never
	if p.going.climbed() || p.unsure() {
		at = p.notYet
	}
	if p.want != 0 {
		at = min(at, c.notBefore(p, p.want))
	}
	if p.force != 0 {
		// At once the first time; then a base period apart, or a consumer that asks again whenever
		// it is told would spin.
		at = min(at, max(c.notBefore(p, p.force), p.forced.after(c.cfg.RelistBase)))
	}
	return at
}

// notBefore returns when a read that must begin after t may begin: right after t, unless one that
// did has already failed, or failed to settle the pod.
func (c *core[S]) notBefore(p *pod, t instant) instant {
	if max(p.read, p.asOf) > t {
		return max(t.next(), p.notYet)
	}
	return t.next()
}
