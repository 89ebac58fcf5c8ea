// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"container/heap"

	"github.com/evented-pleg/evented-pleg/cache"
)

// queueKind is the queue in which a pod waits for its next read. A pod enqueued again while it
// waits moves to a later kind or stays, so it loses its place a few times at most.
type queueKind uint8

const (
	notQueued queueKind = iota
	inListed            // to be inspected; the last list of everything has the pod's listing
	inReady             // to be listed, and inspected if it changed
	inWaited            // likewise; others than the core wait for the read
	inSlow              // likewise; the pod's last read hung
	queueKinds
)

// sweepPatience, in base periods, is how long pods wait for a list under way that will serve them,
// before they are read one by one.
const sweepPatience = 1

// enqueue puts a dirty pod in the queue for its next read. A pod is in one queue at most, and in
// none while being read.
func (c *core[S]) enqueue(p *pod, now instant) {
	if c.reads(p) {
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
		if p.laterAt == 0 || at < p.laterAt { // else an earlier entry exists
			p.laterAt = at
			heap.Push(&c.laterQ, laterEntry{at: at, pod: p})
		}
		return
	}
	if kind := c.queueFor(p); kind > p.queued {
		p.queued = kind // an entry in another queue is skipped there
		c.queues[kind].push(p)
	}
}

// queueFor returns the queue for the pod's next read.
func (c *core[S]) queueFor(p *pod) queueKind {
	c.dropOldListing(p)
	switch {
	case p.slow:
		p.listing = nil // the wait may be so long that the listing would be too old
		return inSlow
	case p.listingServes():
		return inListed
	case p.waited != 0:
		return inWaited
	}
	return inReady
}

// dropOldListing drops the pod's listing if a removal from after that list may have been forgotten:
// only pods in inListed delay the forgetting.
func (c *core[S]) dropOldListing(p *pod) {
	if p.listingBegan < c.forgotten {
		p.listing = nil
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
		if c.dirty[p.uid] == p && p.queued == notQueued {
			c.enqueue(p, now)
		}
	}
}

// dispatch starts as many reads as there are workers. One list of everything replaces the listings
// of many pods.
func (c *core[S]) dispatch(now instant) {
	if !c.othersQueued() && c.queues[inSlow].len() == 0 {
		return // the common case
	}
	if c.sweeps(now) {
		c.requeue(now) // some pods may have been served since
		if c.sweeps(now) {
			c.count.sweeps++
			c.list(now)
			c.requeue(now) // pods that the list will not serve come back
		}
	}
	for len(c.inflight) < c.cfg.InspectWorkers {
		p, ok := c.nextQueued(now)
		if !ok {
			return
		}
		c.inspect(p, now)
	}
	c.interruptHung(now)
}

// sweeps says that one list of everything is to replace the reads of many pods: at once if waiters
// want so many, else a base period after the last list, or a flood of claims would be a flood of
// lists.
func (c *core[S]) sweeps(now instant) bool {
	if c.lists.inflight || c.lists.err != nil {
		return false
	}
	n := c.queues[inWaited].len()
	if now >= c.sweepDue() {
		n += c.queues[inReady].len() + c.slowWaited()
	}
	return n >= c.cfg.SweepAt
}

// sweepDue returns when a sweep may next list pods without waiters; never if there are too few
// pods, or a list is under way or has failed.
func (c *core[S]) sweepDue() instant {
	if c.lists.inflight || c.lists.err != nil || c.queues[inWaited].len()+c.queues[inReady].len()+c.slowWaited() < c.cfg.SweepAt {
		return never
	}
	return c.sched.ended.add(c.cfg.RelistBase)
}

// slowWaited counts the pods whose last read hung and for which a list will do: somebody waits for
// them, and only the age of their statuses is in doubt.
func (c *core[S]) slowWaited() int {
	n := 0
	for p := range c.queues[inSlow].all() {
		if p.queued == inSlow && p.waited != 0 && !p.unsure() {
			n++
		}
	}
	return n
}

// requeue puts the pods that wait to be listed into their present queues.
func (c *core[S]) requeue(now instant) {
	for kind := inReady; kind < queueKinds; kind++ {
		q := &c.queues[kind]
		for range q.len() {
			if p := q.pop(); p.queued == kind {
				p.queued = notQueued
				if c.dirty[p.uid] == p {
					c.enqueue(p, now)
				}
			}
		}
	}
}

// nextQueued takes the next pod to be read now. The queues take turns, and each is first in, first
// out: a pod in need of a read gets one after a few reads of every other pod, however often those
// want one.
func (c *core[S]) nextQueued(now instant) (*pod, bool) {
	for range queueKinds {
		c.turn = (c.turn + 1) % queueKinds
		if c.turn == inSlow && c.queues[inSlow].len() > 0 && c.hung(now) >= c.mayHang() {
			continue
		}
		if p, ok := c.take(c.turn, now); ok {
			return p, true
		}
	}
	return nil, false
}

// take takes the first pod of a queue that still waits in it, and is still to be read now.
func (c *core[S]) take(kind queueKind, now instant) (*pod, bool) {
	q := &c.queues[kind]
	for q.len() > 0 {
		p := q.pop()
		if p.queued != kind {
			continue
		}
		p.queued = notQueued
		switch {
		case c.dirty[p.uid] != p || c.reads(p):
		case c.nextRead(p) > now:
			c.enqueue(p, now) // the pod has been served since
		default:
			return p, true
		}
	}
	return nil, false
}

// inspect starts the read of one pod.
func (c *core[S]) inspect(p *pod, now instant) {
	r := &podRead{asked: now, ref: Pod{UID: p.uid, Name: p.name, Namespace: p.namespace}}
	if p.hasStatus && !p.failed && !p.foreignID && !p.statusUnknown() && p.force == 0 {
		r.builds, r.have = true, cachedItems(p)
	}
	began := now
	c.dropOldListing(p)
	if p.listingServes() {
		r.listed, r.ref.Items, began = true, p.listing, p.listingBegan
	} else if c.knowsAllIDs(p) {
		r.listed, r.byIDs, r.ref.Items, r.builds = true, true, liveItems(p), false
	}
	p.listing = nil
	if p.force != 0 {
		p.forced = now
	}
	p.reading = true
	c.inflight[p] = flight{began: began, started: now, slow: p.slow}
	c.count.inspections++
	c.todo.do(action[S]{kind: actInspect, uid: p.uid, at: began, read: r})
}

// cachedItems returns the items that the pod's status in the cache shows.
func cachedItems(p *pod) []Item {
	items := make([]Item, 0, len(p.items))
	for _, x := range p.items {
		if x.cached != phaseNone {
			items = append(items, Item{ID: x.id, Kind: x.kind, Phase: x.cached})
		}
	}
	return items
}

// inspected is the result of a read of one pod.
type inspected[S any] struct {
	uid     cache.UID
	began   instant
	asked   instant // start of the inspection: later than began if the read builds on a list
	listing *Pod    // the result of ListPod in this read; nil if there was none, or it failed
	status  *S      // nil if the pod was unchanged, gone, or the read failed
	shows   Pod
	byIDs   bool // without a listing: the read says nothing of IDs that were not asked for
	err     error
}

// onInspected applies a read of one pod.
func (c *core[S]) onInspected(r *inspected[S], now instant) {
	p := c.ensure(r.uid)
	interrupted := c.readEnded(p, r.err != nil, now)
	if r.listing != nil {
		c.name(p, r.listing)
	}
	switch {
	case interrupted: // not failed: read again when there is a worker
		if r.listing != nil {
			c.merge(p, r.listing.Items, r.began, now, byPod)
		}
	case r.err != nil:
		c.inspectFailed(p, r, now)
	case r.status == nil:
		if c.merge(p, r.listing.Items, r.began, now, byPod) {
			c.confirm(p, r.began, now)
		}
	default:
		by := byPod
		if r.byIDs {
			by = byIDs
		}
		agrees := c.merge(p, r.shows.Items, r.began, now, by)
		switch {
		case len(r.shows.Items) == 0 && p.live() == 0:
			c.erase(p, r.began, now)
		case !agrees && c.regresses(p, r.shows.Items):
			c.count.contradicted++
		default:
			c.store(p, r.status, r.shows.Items, r.began, now)
		}
	}
	if r.err == nil {
		if c.contradictedByList(p, r) {
			p.disagrees = true
		}
		c.scheduleReread(p, r.began, now)
	}
	c.reviewAffected(now)
	c.review(p, now)
}

// contradictedByList says that a list applied during an inspection showed the pod otherwise. Either
// may have looked last, whichever began last: only a later read can settle the pod.
func (c *core[S]) contradictedByList(p *pod, r *inspected[S]) bool {
	if r.asked >= c.lists.finished {
		return false
	}
	shows := r.shows.Items
	if r.status == nil {
		shows = r.listing.Items
	}
	return !sameItems(listingOf(p), shows)
}

func (c *core[S]) inspectFailed(p *pod, r *inspected[S], now instant) {
	c.count.inspectErrors++
	if r.listing != nil {
		c.merge(p, r.listing.Items, r.began, now, byPod)
	}
	first := !p.backoff.climbed()
	p.notYet = p.backoff.climb(r.began, now, c.cfg.RetryBase, c.cfg.RetryMax)
	c.storeError(p, r.err, r.began)
	if first {
		c.todo.report(Report{
			Reason: ReasonInspectFailed, Action: "Inspect", Warning: true, Note: "the pod's status cannot be read: " + r.err.Error(),
			Pod: &PodRef{UID: p.uid, Name: p.name, Namespace: p.namespace},
		})
	}
}

// scheduleReread decides when a pod that a successful read has not settled is read again: at once
// after a change since that read began, or when the agent's calls have settled if nobody waits,
// else with growing delay. Only a read that has waited for the delay makes it grow: lists and
// waiters come at times of their own, and a dozen within some milliseconds would put the next look
// off by minutes.
func (c *core[S]) scheduleReread(p *pod, began, now instant) {
	delay, first := &p.reread, c.cfg.RereadBase
	switch {
	case p.changedAt > began:
		if p.notYet = 0; p.own.hold > now && (p.want == 0 || c.asOf(p) > p.want) {
			p.notYet = p.own.hold
		}
		return
	case !p.settled() && began < p.read && p.notYet == 0: // a list has found a change meanwhile
		return
	case p.unsure() || p.want != 0 && began > p.want && c.asOf(p) <= p.want:
		p.listing = nil // by then the listing is too old to tell more than this read
	case p.teardown.climbed():
		delay, first = &p.teardown, c.firstLook()
	default:
		return
	}
	p.notYet = delay.climb(began, now, first, c.cfg.RelistMax)
}

func (c *core[S]) name(p *pod, shown *Pod) {
	if shown.Name != "" || shown.Namespace != "" {
		p.name, p.namespace = shown.Name, shown.Namespace
	}
}
