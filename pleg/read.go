// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// lists is the state of the lists of everything.
type lists struct {
	inflight bool
	began    instant  // begin of the list under way, or of the last
	revision Revision // of the last applied list
	applied  instant  // begin of the last applied list
	global   instant  // the cache's global time; it moves in core.advance only
	finished instant  // when the last successful list was applied, or the start
	err      error    // of the last list, nil after success
}

// round is a list with changed pods still to be read; without one the global time moves to began.
type round struct {
	began   instant
	pending map[*pod]struct{}
}

// listedAll is the result of a list of everything.
type listedAll struct {
	began   instant
	listing Listing
	err     error
}

// list starts a list of everything.
func (c *core[S]) list(now instant) {
	before := c.lists.began
	c.lists.inflight, c.lists.began = true, now
	c.sched.asked, c.sched.askedNow = never, false
	c.todo.do(action[S]{kind: actList, at: now, before: before, since: c.lists.revision})
}

// onListed applies a list of everything. A list confirms the pods listed as in the cache, wants a
// read of all others, and stores nothing but the absence of a pod.
func (c *core[S]) onListed(r *listedAll, now instant) {
	failed := c.lists.err != nil
	c.lists.inflight, c.lists.err = false, r.err
	took := now.sub(r.began)
	c.sched.ended = now
	if r.err != nil {
		c.count.relistErrors++
		c.reportPaced(Report{Reason: ReasonRelistFailed, Action: "Relist", Warning: true, Note: "listing the runtime failed: " + r.err.Error()}, now)
		c.sched.ask(now, false)
		for _, p := range inOrder(c.dirty) {
			c.review(p, now) // pods have waited for the list
		}
		return
	}
	if failed {
		c.step(inBack, nil, now)
	}
	c.count.relists++
	c.todo.do(action[S]{kind: actListLasted, took: took})
	if took > c.cfg.RelistSlow {
		c.reportPaced(Report{
			Reason: ReasonRelistSlow, Action: "Relist", Warning: true,
			Note: fmt.Sprintf("listing the runtime took %v", took.Round(time.Millisecond)),
		}, now)
	}
	found := c.candidates.len()
	pending := c.visitAll(r, now)
	quiet := len(pending) == 0 && c.candidates.len() == found
	trusted := c.connected() && c.lists.applied > c.conn.connected && r.began > c.overruled
	c.lists.applied, c.lists.revision, c.lists.finished = r.began, r.listing.Revision, now
	if trusted {
		c.credit(quiet, now)
	}
	if len(c.rounds) == 2 {
		c.rounds = c.rounds[:1] // the first may end before the second, which the new one replaces
	}
	c.rounds = append(c.rounds, round{r.began, pending})
	for _, p := range inOrder(pending) {
		c.review(p, now)
	}
	c.advance()
}

// visitAll applies a list to every pod that may differ, and returns the pods still to be read.
func (c *core[S]) visitAll(r *listedAll, now instant) map[*pod]struct{} {
	began := r.began
	pending, rest := make(map[*pod]struct{}), make(map[*pod]struct{}) // rest: pods not named by the list
	visit := func(p *pod, items []Item) {
		if p.visited == began {
			return // shown twice: the first counts
		}
		p.visited = began
		quiet := c.visit(p, items, began, now)
		if p.asOf < began {
			pending[p] = struct{}{}
		} else if !quiet {
			c.review(p, now)
		}
	}
	c.todo.expect(len(r.listing.Pods))
	for i := range r.listing.Pods {
		if shown := &r.listing.Pods[i]; shown.UID != "" {
			p := c.ensure(shown.UID)
			p.rename(shown.Name, shown.Namespace)
			visit(p, shown.Items)
		}
	}
	for _, uid := range r.listing.Gone {
		if p := c.pods[uid]; p != nil {
			visit(p, nil)
		}
	}
	add := func(p *pod) {
		if p.visited != began {
			rest[p] = struct{}{}
		}
	}
	for p, f := range c.inflight { // or a failure from before the list would count as newer
		f.lapped = true
		add(p)
	}
	if r.listing.Delta {
		for p := range c.dirty {
			add(p)
		}
		for p := range c.differ {
			add(p)
		}
	} else {
		for _, p := range c.pods {
			add(p)
		}
	}
	for _, p := range inOrder(rest) {
		var items []Item
		if r.listing.Delta { // silence means as before
			if items = p.listed; !p.differs() {
				items = p.shownItems()
			}
		}
		visit(p, items)
	}
	return pending
}

// visit compares a pod with a list, and reports whether nothing is left to do for the pod.
func (c *core[S]) visit(p *pod, items []Item, began, now instant) (quiet bool) {
	news := false
	for i := 0; i < len(items) && len(c.early) > 0; i++ {
		news = c.takeEarly(p, items[i].ID, now) || news
	}
	same := c.compare(p, items, began)
	if !same && slices.ContainsFunc(items, func(it Item) bool { return it.valid() && c.find(p, 0, it.ID) == nil }) {
		p.unlisted = max(p.unlisted, began) // a read by the known IDs would not show this one
	}
	overlaps := p.reading || p.readEnd > began // a read of the pod may have looked later than the list
	gone := (!overlaps || same) && !slices.ContainsFunc(items, Item.valid)
	switch {
	case began < p.asOf:
		if !same {
			p.due = max(p.due, now)
		}
	case gone && p.entry == noEntry && p.want != 0 && began < c.floor: // the read that the waiters want answers
	case gone && (p.entry != noEntry || p.want != 0):
		c.store(p, nil, nil, began, now)
		c.resolve(p, began)
	case gone:
		p.asOf = began
		c.resolve(p, began)
	case same && len(p.items) > 0:
		if p.entry == statusEntry && p.force == 0 {
			quiet = !news && len(p.expected) == 0 && p.want == 0 && p.due == 0 && len(c.rounds) == 0
			c.todo.observe(p.uid, began)
			p.asOf = began
			c.resolve(p, began)
			c.delay(p, began, now)
		}
		if p.entry == failedEntry {
			p.notBefore = 0 // a list gives the pod another try
		}
	case overlaps && !p.reading:
		p.due = max(p.due, now-1) // a read begun now is later than the list
	default: // if the pod is being read: core.onInspected compares
		p.due, p.hold = max(p.due, began-1), min(p.hold, c.old(now))
	}
	return quiet
}

// compare records the items of a pod in a list, begun at the given time, and reports whether the
// cache shows the same.
func (c *core[S]) compare(p *pod, items []Item, began instant) (same bool) {
	if c.matches(p, items) {
		if p.differs() {
			p.listed, p.listedAt, p.agreed = nil, 0, 0
			delete(c.differ, p)
		}
		return true
	}
	if !p.differs() {
		p.agreed = c.lists.applied
	}
	p.listed, p.listedAt = items, began
	c.differ[p] = struct{}{}
	return false
}

// matches reports whether a report and the cache show the same.
func (c *core[S]) matches(p *pod, items []Item) bool {
	c.marks++
	n := 0
	for i, it := range items {
		if !it.valid() {
			continue
		}
		x := c.find(p, i, it.ID)
		if x == nil {
			return false
		}
		if x.mark == c.marks {
			continue
		}
		if x.shown != it.Phase {
			return false
		}
		x.mark = c.marks
		n++
	}
	return n == len(p.items)
}

// advance moves the global time to the begin of the latest list with nothing pending.
func (c *core[S]) advance() {
	for i := len(c.rounds) - 1; i >= 0; i-- {
		if len(c.rounds[i].pending) == 0 {
			c.lists.global = max(c.lists.global, c.rounds[i].began)
			c.todo.do(action[S]{kind: actAdvance, at: c.lists.global})
			c.rounds = slices.Delete(c.rounds, 0, i+1)
			return
		}
	}
}

// flight is a read of a pod under way.
type flight struct {
	began   instant // time of the result: begin of the list that the read builds on, or started
	started instant
	lapped  bool // a list has ended during the read
}

// inspected is the result of a read of a pod.
type inspected[S any] struct {
	uid     cache.UID
	began   instant
	listing *Pod // the result of ListPod in this read; nil if there was none, or it failed
	status  *S   // nil if the pod was as in the cache, gone, or the read failed
	shows   Pod  // what the status shows
	err     error
}

// inspect starts the read of a pod. The read takes a list that is new enough, or the IDs made by
// the agent, in place of a list of the pod.
func (c *core[S]) inspect(p *pod, now instant) {
	r := &podRead{ref: Pod{UID: p.uid, Name: p.name, Namespace: p.namespace}}
	builds := p.entry == statusEntry && p.force == 0 && !p.unknown()
	began := now
	if at := p.listedAt; at > max(p.want, p.force, p.due, p.readEnd) && at >= max(c.asOf(p), c.floor) && len(p.listed) > 0 && len(p.expected) == 0 {
		r.listed, r.ref.Items, r.builds, began = true, p.listed, builds, at
	} else if known := c.knownItems(p); len(known) > 0 {
		r.listed, r.ref.Items = true, known
	} else if builds {
		r.builds, r.have = true, p.shownItems()
	}
	if p.force != 0 {
		p.forced = now
	}
	p.reading = true
	c.inflight[p] = &flight{began: began, started: now}
	c.count.inspections++
	c.todo.do(action[S]{kind: actInspect, uid: p.uid, at: began, read: r})
}

// onInspected applies a read of a pod.
func (c *core[S]) onInspected(r *inspected[S], now instant) {
	p := c.ensure(r.uid)
	lapped := c.inflight[p].lapped
	p.reading, p.readEnd = false, now
	delete(c.inflight, p)
	shows := r.shows.Items
	if r.listing != nil {
		p.rename(r.listing.Name, r.listing.Namespace)
		if r.status == nil {
			shows = r.listing.Items
		}
	}
	first, last := c.contradicts(p, shows)
	switch {
	case r.err != nil:
		c.inspectFailed(p, r, now)
	case r.began < c.asOf(p) || r.began <= last || r.status == nil && len(shows) > 0 && !c.matches(p, shows):
		// A list, or a payload, has overtaken the read.
		if c.matches(p, shows) {
			c.delay(p, r.began, now)
		} else {
			p.due = max(p.due, now-1)
		}
	case first != 0 && r.began <= first.add(c.cfg.Grace): // a claim is believed for a grace
		p.notBefore = p.retry.climb(r.began, now, c.cfg.RereadBase, c.cfg.RelistMax)
		p.notBefore = min(p.notBefore, first.add(c.cfg.Grace).next())
		p.due = max(p.due, p.notBefore-1)
		if r.began > p.want {
			p.want = 0 // the read due answers; a new waiter has a read at once
		}
	default:
		if len(shows) == 0 {
			c.store(p, nil, nil, r.began, now)
		} else if r.status != nil {
			c.store(p, r.status, shows, r.began, now)
		} else {
			c.todo.observe(p.uid, r.began)
			p.asOf = r.began
		}
		c.resolve(p, r.began)
		c.delay(p, r.began, now)
	}
	if lapped && r.err == nil && p.differs() { // either may have looked last
		p.due = max(p.due, now-1)
	}
	c.review(p, now)
}

// delay sets when a pod is read again without a demand.
func (c *core[S]) delay(p *pod, began, now instant) {
	switch {
	case p.unmet():
		p.notBefore = p.retry.climb(began, now, c.cfg.RereadBase, c.cfg.RelistMax)
	case c.cfg.Streams && p.teardown():
		p.notBefore = p.retry.climb(began, now, max(c.cfg.RelistBase/10, 1), c.cfg.RelistMax)
	default:
		p.retry, p.notBefore = ladder{}, 0
	}
}

// inspectFailed stores a read's failure beside the last status, unless something newer is known.
func (c *core[S]) inspectFailed(p *pod, r *inspected[S], now instant) {
	c.count.inspectErrors++
	first := p.entry != failedEntry
	if first {
		p.retry = ladder{}
	}
	p.notBefore = p.retry.climb(r.began, now, c.cfg.RetryBase, c.cfg.RetryMax)
	if r.began < c.asOf(p) {
		return
	}
	c.todo.do(action[S]{kind: actFail, uid: p.uid, at: r.began, err: r.err})
	p.entry, p.asOf = failedEntry, r.began
	if first {
		c.todo.report(Report{
			Reason: ReasonInspectFailed, Action: "Inspect", Warning: true, Note: "the pod's status cannot be read: " + r.err.Error(),
			Pod: &PodRef{UID: p.uid, Name: p.name, Namespace: p.namespace},
		})
	}
}

// review follows up on any change of a pod: the pod is queued for a read if need be, and forgotten
// if nothing is left.
func (c *core[S]) review(p *pod, now instant) {
	if c.pods[p.uid] != p {
		return // forgotten
	}
	at := c.asOf(p)
	if p.want != 0 && at > p.want {
		p.want = 0
	}
	if p.due != 0 && at > p.due {
		p.due = 0
	}
	next := c.nextRead(p)
	forget := next == never && len(p.items)+len(p.expected) == 0 && p.entry == noEntry && !p.reading && !p.queued && p.calls == 0 && !p.differs()
	for i := range c.rounds {
		if r := &c.rounds[i]; forget || p.asOf >= r.began {
			delete(r.pending, p)
		}
	}
	c.advance()
	if forget {
		c.uncertain, c.floor = max(c.uncertain, p.unlisted), max(c.floor, p.asOf)
		delete(c.pods, p.uid)
	}
	if next == never {
		delete(c.dirty, p)
		return
	}
	c.dirty[p] = struct{}{}
	switch {
	case p.reading || p.queued:
	case next <= now:
		p.queued = true
		c.queue.push(p)
	case p.later == 0 || next < p.later:
		p.later = next
		heap.Push(&c.later, laterEntry{at: next, pod: p})
	}
}

// nextRead returns when the next read of the pod is due; never if none is.
func (c *core[S]) nextRead(p *pod) instant {
	at := never
	if p.unmet() || p.entry == failedEntry || c.cfg.Streams && p.teardown() {
		at = p.notBefore
	}
	if p.want != 0 {
		at = min(at, p.want.next())
	}
	if p.due != 0 {
		at = min(at, max(p.hold, p.due.next()))
	}
	if l := &c.lists; l.inflight && at <= l.began {
		at = c.old(l.began) // the list under way comes first
	}
	if p.force != 0 && p.entry != failedEntry {
		next := p.force.next()
		if p.forced != 0 {
			next = max(next, p.forced.add(c.cfg.RelistBase))
		}
		at = min(at, next)
	}
	return at
}

// dispatch starts the reads due. A list of everything replaces the reads of many pods.
func (c *core[S]) dispatch(now instant) {
	if c.queue.len() == 0 {
		return
	}
	if c.sweeps(now) {
		c.count.sweeps++
		c.list(now)
	}
	for c.queue.len() > 0 && c.mayRead(now) {
		p := c.queue.pop()
		p.queued = false
		if c.pods[p.uid] == p && c.nextRead(p) <= now {
			c.inspect(p, now)
		} else {
			c.review(p, now)
		}
	}
}

// sweeps reports whether a list of everything is to replace the reads of many pods: at once if
// waiters want so many, else a base period after the last list, or a flood of claims would be a
// flood of lists.
func (c *core[S]) sweeps(now instant) bool {
	if c.lists.inflight || c.lists.err != nil || c.queue.len() < c.cfg.SweepAt || now <= c.sched.ended {
		return false
	}
	if now >= c.sched.ended.add(c.cfg.RelistBase) {
		return true
	}
	waited, looks := 0, 4*c.cfg.SweepAt
	for p := range c.queue.all() {
		if looks--; looks < 0 {
			return false
		}
		if p.want != 0 && p.want < now && p.force == 0 && p.entry == statusEntry && !p.unmet() && !p.differs() {
			if waited++; waited >= c.cfg.SweepAt {
				return true
			}
		}
	}
	return false
}

// Reads older than a tenth of the base period do not count against the workers: by then other pods
// have waited long enough. So any number of hanging reads delay a pod by little more than a base
// period, and the number of workers may double with every tenth, up to these bounds.
const (
	moreWorkers = 8   // times Config.InspectWorkers: the reads at once that do not hang
	allReads    = 128 // times Config.InspectWorkers: the reads at once
)

// old returns when a read started at the given time no longer counts against the workers.
func (c *core[S]) old(started instant) instant { return started.add(c.cfg.RelistBase / 10) }

// mayRead reports whether one more read may start.
func (c *core[S]) mayRead(now instant) bool {
	n := len(c.inflight)
	if n < c.cfg.InspectWorkers {
		return true
	}
	old := 0
	for _, f := range c.inflight {
		if now >= c.old(f.started) {
			old++
		}
	}
	return n < allReads*c.cfg.InspectWorkers && n-old < min(max(old, c.cfg.InspectWorkers), moreWorkers*c.cfg.InspectWorkers)
}

// nextWorker returns when the pods in the queue may get another worker without the end of a read.
func (c *core[S]) nextWorker() instant {
	at := never
	if c.queue.len() > 0 {
		for _, f := range c.inflight {
			if old := c.old(f.started); old > c.ticked { // else the last tick has handled the read
				at = min(at, old)
			}
		}
	}
	return at
}

// laterEntry is a pod to review at a time. An entry not at pod.later is stale.
type laterEntry struct {
	at  instant
	pod *pod
}

// laterHeap orders entries by time.
type laterHeap []laterEntry

var _ heap.Interface = (*laterHeap)(nil)

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h laterHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push appends an entry; use heap.Push.
func (h *laterHeap) Push(v any) { *h = append(*h, v.(laterEntry)) }

// Pop removes the last entry; use heap.Pop.
func (h *laterHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	old[len(old)-1] = laterEntry{}
	*h = old[:len(old)-1]
	return v
}
