// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

// store makes a reading the state of the pod. The entry is as of the begin of the read, unless a
// list begun later has shown the same.
func (c *core[S]) store(p *pod, r reading[S], now instant) {
	at := r.began
	if at == 0 {
		at = c.lists.asOf(p)
	}
	if r.err == nil { // an error is as old as its read
		at = c.lists.agrees(p, r.items, at)
	}
	if r.looked == 0 {
		c.peeks.brought(p.uid, now)
	}
	last := lastLook{since: c.lists.lastRead(p), stream: c.stream.upSince()}
	last.knew = last.since
	if p.failed() {
		last.knew = p.good
	}
	if r.began != 0 && last.since > r.began {
		last.since = r.agreed // a list begun later has agreed, and may have looked later
	}
	listed, listedAt := c.lists.last(p)
	c.enter(p, &r, at, last, now)
	p.holdAnew(&c.records, &c.cfg, now)
	if listedAt != 0 {
		c.lists.compare(p, listed, listedAt, c.matches(p, listed))
	}
}

// offer stores the payload of a claim if the payload dominates, and the cache holds a status from
// a read. The payload makes nothing fresh: the time of the entry stays. A later read decides; see
// records.contradicts for a read that shows less.
//
// Events may come faster than reads end, and a read that shows less than a payload is made again.
// If the last read was, and somebody waits for all statuses, the read under way decides, and the
// event has a read of its own. A read that hangs decides nothing.
func (c *core[S]) offer(p *pod, pc *podClaims[S], now instant) {
	if pc.status == nil || p.entry != statusEntry ||
		!p.unmet() || !c.dominates(p, pc.payload) {
		return
	}
	f := c.reads.inflight[p]
	if f != nil && p.outrun && p.content != 0 &&
		now < c.peeks.failAt(f.started, c.reads.first()) {
		return
	}
	cached, _ := c.cache.Get(p.uid)
	status, err := pc.status(cached)
	if err != nil || status == nil {
		return
	}
	c.out.add(countDominated, 1)
	p.owesRead(&c.cfg, now)
	c.reads.cross(p)
	p.expected.needNoRead()
	c.store(p, reading[S]{
		status:  status,
		items:   pc.payload,
		excused: true,
	}, now)
}
