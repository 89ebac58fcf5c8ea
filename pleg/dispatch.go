// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "container/heap"

// queueKind says which queue a pod waits in for its next read.
type queueKind uint8

const (
	notQueued queueKind = iota
	inReady             // to be listed, and inspected if it changed
	inListed            // to be inspected; the last list of everything has its listing
)

// sweepPatience, in base periods, is how long pods that a list under way will serve wait for it before they are read one by one.
const sweepPatience = 1

// enqueue puts an open pod where its next read will be made from. A pod is in one queue at most, and not while it is being read.
func (c *core[S]) enqueue(p *pod, now instant) {
	if p.inflight {
		return
	}
	at := c.nextRead(p)
	if at == never {
		return
	}
	if c.lists.inflight && p.servedBy(c.lists.began) {
		at = max(at, c.lists.began.add(sweepPatience*c.cfg.RelistBase)) // the list under way serves it
	}
	if at > now {
		if p.laterAt == 0 || at < p.laterAt { // else it is looked at again before that anyway
			p.laterAt = at
			heap.Push(&c.laterQ, laterEntry{at: at, pod: p})
		}
		return
	}
	switch {
	case p.listingServes():
		if p.queued == notQueued {
			p.queued = inListed
			c.listedQ.push(p)
		}
	case p.queued != inReady:
		p.queued = inReady // if it is in the other queue, it is skipped there
		c.readyQ.push(p)
	}
}

// takeLater moves the pods whose time has come.
func (c *core[S]) takeLater(now instant) {
	for c.laterQ.Len() > 0 && c.laterQ[0].at <= now {
		e := heap.Pop(&c.laterQ).(laterEntry)
		p := e.pod
		if e.at == p.laterAt {
			p.laterAt = 0
		}
		if c.open[p.uid] == p && p.queued == notQueued {
			c.enqueue(p, now)
		}
	}
}

// dispatch starts the reads for which there are workers: of the pods that somebody waits for, or of which a claim told something, before those that
// a list found changed. When many want to be listed, one list of everything does it.
func (c *core[S]) dispatch(now instant) {
	if c.readyQ.len() >= c.cfg.SweepAt && !c.lists.inflight && !c.lists.broken {
		c.requeue(now) // some may have been served since
		if c.readyQ.len() >= c.cfg.SweepAt {
			c.count.sweeps++
			c.list(now)
			c.requeue(now) // those that the list will not serve come back
		}
	}
	for len(c.inflight) < c.cfg.InspectWorkers {
		p, ok := c.nextQueued(now)
		if !ok {
			return
		}
		c.inspect(p, now)
	}
}

// requeue puts the pods that wait to be listed where they belong now.
func (c *core[S]) requeue(now instant) {
	for range c.readyQ.len() {
		if p := c.readyQ.pop(); p.queued == inReady {
			p.queued = notQueued
			if c.open[p.uid] == p {
				c.enqueue(p, now)
			}
		}
	}
}

// nextQueued takes the next pod that is still to be read out of the queues.
func (c *core[S]) nextQueued(now instant) (*pod, bool) {
	if p, ok := c.take(&c.readyQ, inReady, now); ok {
		return p, true
	}
	return c.take(&c.listedQ, inListed, now)
}

// take takes the first pod out of a queue that still waits in it, and still is to be read now.
func (c *core[S]) take(q *fifo[*pod], kind queueKind, now instant) (*pod, bool) {
	for q.len() > 0 {
		p := q.pop()
		if p.queued != kind {
			continue
		}
		p.queued = notQueued
		switch {
		case c.open[p.uid] != p || p.inflight:
		case c.nextRead(p) > now:
			c.enqueue(p, now) // it has been served since
		default:
			return p, true
		}
	}
	return nil, false
}

// inspect starts the read of one pod.
func (c *core[S]) inspect(p *pod, now instant) {
	a := action[S]{kind: actInspect, pod: p, began: now, ref: Pod{UID: p.uid, Name: p.name, Namespace: p.namespace}}
	if p.hasStatus && !p.failed && !p.alien && !p.blank() && p.force == 0 {
		a.prev, _ = c.cfg.Cache.Get(p.uid)
		a.have = cachedItems(p)
	}
	if p.listingServes() {
		a.listed, a.ref.Items, a.began = true, p.listing, p.listingBegan
	}
	p.listing = nil
	p.inflight = true
	if p.force != 0 {
		p.forced = now
	}
	c.inflight[p] = a.began
	c.count.inspections++
	c.cfg.Metrics.Add(MetricInspections, 1)
	c.todo = append(c.todo, a)
}

// cachedItems returns what the pod's status in the cache shows.
func cachedItems(p *pod) []Item {
	items := make([]Item, 0, len(p.items))
	for _, x := range p.items {
		if x.cached != phaseNone {
			items = append(items, Item{ID: x.id, Kind: x.kind, Phase: x.cached})
		}
	}
	return items
}

// inspected is the result of the read of one pod.
type inspected[S any] struct {
	pod     *pod
	began   instant
	listing *Pod // what a ListPod of this read showed, nil if none was made or it failed
	status  *S   // nil if the pod was unchanged, gone, or the read failed
	shows   Pod
	err     error
}

// onInspected applies the read of one pod.
func (c *core[S]) onInspected(r *inspected[S], now instant) {
	p := r.pod
	p.inflight = false
	delete(c.inflight, p)
	if r.listing != nil {
		c.name(p, r.listing)
	}
	switch {
	case r.err != nil:
		c.inspectFailed(p, r, now)
	case r.status == nil:
		if c.merge(p, r.listing.Items, r.began, now, false) {
			c.confirm(p, r.began, now)
		}
	default:
		agrees := c.merge(p, r.shows.Items, r.began, now, false)
		switch {
		case len(r.shows.Items) == 0 && p.live() == 0:
			c.erase(p, r.began, now)
		case !agrees && c.takesBack(p, r.shows.Items):
			c.count.contradicted++
		default:
			c.store(p, r.status, r.shows.Items, r.began, now)
		}
	}
	if r.err == nil {
		c.pace(p, r.began, now)
	}
	c.review(p, now)
}

func (c *core[S]) inspectFailed(p *pod, r *inspected[S], now instant) {
	c.count.inspectErrors++
	c.cfg.Metrics.Add(MetricInspectionErrors, 1)
	if r.listing != nil {
		c.merge(p, r.listing.Items, r.began, now, false)
	}
	first := p.backoff == 0
	if first || r.began >= p.retry {
		p.backoff = grow(p.backoff, c.cfg.RetryBase, c.cfg.RetryMax)
	}
	p.retry = now.add(p.backoff)
	p.notYet = p.retry
	c.storeError(p, r.err, r.began, now)
	if first {
		c.reports = append(c.reports, Report{
			Reason: ReasonInspectFailed, Action: "Inspect", Warning: true, Note: "the pod's status cannot be read: " + r.err.Error(),
			Pod: &PodRef{UID: p.uid, Name: p.name, Namespace: p.namespace},
		})
	}
}

// pace decides when a pod that a read, which did not fail, has not settled is read again: at once if something has changed since that read began,
// otherwise with growing delay. Every read and every list starts the delay anew, and only one that has waited for it makes it grow: lists and waiters come
// when others want them, and a dozen within some milliseconds would put the next look off by minutes.
func (c *core[S]) pace(p *pod, began, now instant) {
	delay, first := &p.reread, c.cfg.RereadBase
	switch {
	case p.moved > began:
		p.notYet = 0
		return
	case !p.settled() && began < p.read && p.notYet == 0: // a list has found it changed meanwhile
		return
	case p.unsure() || p.want != 0 && began > p.want && c.asOf(p) <= p.want:
		p.listing = nil // it is too old by then to tell more than this read did
	case p.goingAt != 0:
		delay, first = &p.goingAt, c.firstLook()
	default:
		return
	}
	if *delay == 0 || began >= p.again {
		*delay = grow(*delay, first, c.cfg.RelistMax)
	}
	p.again = now.add(*delay)
	p.notYet = p.again
}

func (c *core[S]) name(p *pod, shown *Pod) {
	if shown.Name != "" || shown.Namespace != "" {
		p.name, p.namespace = shown.Name, shown.Namespace
	}
}
