// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"slices"
)

// expiry is a pod that has a removed item, or a suspect said to be removed, since a time. Such IDs
// are remembered for the grace, and while a read is under way that began before, so that nothing
// late brings them back.
type expiry struct {
	at  instant
	pod *pod
}

// maxUnconfirmed bounds the removals of one pod that only claims have told of: a pod whose
// containers come and go for ever is read now and then.
const maxUnconfirmed = 32

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
	kept, unconfirmed := false, 0
	c.looks += uint64(len(p.items))
	p.items = slices.DeleteFunc(p.items, func(x *item) bool {
		if x.phase != PhaseRemoved {
			return false
		}
		// A claim that no read has confirmed may yet be overruled. And what the last list showed
		// must be remembered until a list no longer shows it: one that tells only differences will
		// say nothing of it.
		needed := x.byClaim || x.told != PhaseRemoved || x.cached != phaseNone || x.listed != phaseNone
		if needed || !done(x.sure) {
			kept = kept || needed
			if x.byClaim {
				unconfirmed++
			}
			return false
		}
		delete(c.index, x.id)
		return true
	})
	for i, x := range p.items {
		x.at = i
	}
	for id, s := range p.suspects {
		if s.phase == PhaseRemoved && done(s.at) {
			delete(p.suspects, id)
			c.suspects--
		}
	}
	if kept {
		c.leftover[p.uid] = p
	} else {
		delete(c.leftover, p.uid)
	}
	if unconfirmed > maxUnconfirmed && p.want == 0 {
		p.want = now // a read confirms them, and they can go
		c.review(p, now)
	}
	if c.open[p.uid] == nil {
		c.forget(p)
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
	for id, s := range c.homeless {
		if s.phase == PhaseRemoved && now.sub(s.at) > c.cfg.Grace && s.at < oldest {
			delete(c.homeless, id)
		}
	}
	for _, p := range inOrder(c.leftover) {
		c.expirePod(p, oldest, now)
	}
	c.todo.do(action[S]{kind: actForgive, n: int32(min(len(c.pods)+c.cfg.OwedMax, math.MaxInt32))})
}
