// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "github.com/evented-pleg/evented-pleg/cache"

// guard is what the core knows of the times by which the cache refuses what comes too late. The
// times of entries are the pods' own, the global time is that of the lists; what is left are the
// tombstones, which outlive the records of their pods, and the time before which no write may come
// any more. It belongs to the core, and is as the cache will be once all actions so far have been
// carried out.
type guard struct {
	gone  map[cache.UID]instant // the tombstones: a read begun then did not show the pod
	floor instant               // older tombstones have been pruned
}

// advance forgets the tombstones that the global time makes needless.
func (g *guard) advance(global instant) {
	for uid, at := range g.gone {
		if at <= global {
			delete(g.gone, uid)
		}
	}
}

// prune forgets the tombstones from before that time. It reports whether there were any tombstones
// at all: if not, there is nothing to prune in the cache either.
func (g *guard) prune(before instant) bool {
	if len(g.gone) == 0 {
		return false
	}
	g.floor = max(g.floor, before)
	for uid, at := range g.gone {
		if at < g.floor {
			delete(g.gone, uid)
		}
	}
	return true
}

// covered returns what the cache's AsOf returns for the pod, entry or not.
func (c *core[S]) covered(p *pod) instant {
	if p.hasEntry() {
		return c.asOf(p)
	}
	return max(c.lists.global, c.guard.gone[p.uid])
}

// takes says that the cache takes a write for the pod by a read begun at that time.
func (c *core[S]) takes(p *pod, at instant) bool {
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
