// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"container/heap"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// flight is a read of a pod under way.
type flight struct {
	began   instant // time of the result: begin of the list that the read builds on, or started
	started instant
	lane    int
	full    bool   // all statuses are read
	listed  []Item // by the list that the read builds on; nil if it builds on none
	lapped  bool   // a list has ended during the read
	sighted bool   // one that has shown all IDs that live
	wavered bool   // and after it one that has not
}

// lap notes that a list has ended during the read, and whether it has missed an ID that lives.
// If one list has shown all and a later one has not, the read may have looked before both: what
// neither the read nor the last list shows was not missed twice in a row.
func (f *flight) lap(missed bool) {
	f.wavered = f.wavered || f.sighted && missed
	f.sighted = f.sighted || !missed
}

// inspected is the result of a read of a pod.
type inspected[S any] struct {
	uid     cache.UID
	began   instant
	listing *Pod  // the result of ListPod in this read; nil if there was none, or it failed
	status  *S    // nil if the pod was as in the cache, gone, or the read failed
	shows   Pod   // what the status shows, and the items in unread
	unread  idSet // the IDs whose status could not be read, in shows at the phase asked for
	err     error
	peek    bool // the read was a peek
}

// inspect starts the read of a pod. The read takes a list that is new enough, or the IDs made by
// the agent, in place of a list of the pod.
func (c *core[S]) inspect(p *pod, lane int, now instant) {
	r := &podRead{ref: Pod{UID: p.uid, Name: p.name, Namespace: p.namespace}}
	full := p.needsContent(now) || c.evidence.disputed(&c.records, p, now)
	builds := p.entry == statusEntry && !full && !p.unknown()
	began := now
	known := c.knownItems(p)
	listed, at := c.lists.standsIn(p, full, c.floor)
	switch {
	case len(listed) > 0:
		r.listed = true
		r.ref.Items = listed
		r.builds = builds
		began = at
	case len(known) > 0:
		r.listed = true
		r.ref.Items = known
	case builds:
		r.builds = true
		r.have = p.shownItems()
	}
	if p.force != 0 {
		p.forced = now
	}
	p.excused = p.force != 0 || p.calls > 0 || p.called >= p.read && p.called != 0 || p.settling != 0
	p.reading = true
	c.lanes[lane].begin(now)
	c.inflight[p] = &flight{
		began:   began,
		started: now,
		lane:    lane,
		full:    !r.builds,
		listed:  listed,
	}
	p.since = 0
	c.out.count[countInspections]++
	c.out.do(action[S]{
		kind: actInspect,
		uid:  p.uid,
		at:   began,
		read: r,
	})
}

// needsContent reports whether the pod's next read, begun now, must be of all statuses.
func (p *pod) needsContent(now instant) bool {
	return p.content != 0 || p.force != 0 || p.due != 0 || p.late != 0 && p.late <= now
}

// onInspected applies a read of a pod.
func (c *core[S]) onInspected(r *inspected[S], now instant) {
	p := c.ensure(r.uid)
	f := c.inflight[p]
	c.lanes[f.lane].end(f.started, r.err == nil, now)
	p.reading = false
	p.readEnd = now
	delete(c.inflight, p)
	shows := r.shows.Items
	if r.listing != nil {
		p.rename(r.listing.Name, r.listing.Namespace)
		if r.status == nil {
			shows = r.listing.Items
		}
		if !p.split {
			c.sighted(p, r.listing.Items) // the statuses may not show what the listing has shown
		}
		f.listed = r.listing.Items
	}
	switch {
	case f.listed != nil && r.status != nil:
		read := setOfItems(shows)
		p.split = slices.ContainsFunc(f.listed, func(it Item) bool { return !read.has(it.ID) })
	case f.listed != nil && r.err == nil:
		p.split = false // the listing shows what the statuses have shown
	case r.status == nil && p.split: // a list alone does not bring back what statuses have not shown
		shows = slices.DeleteFunc(slices.Clone(shows), func(it Item) bool {
			return c.find(p, 0, it.ID) == nil && !p.expects(it.ID)
		})
	}
	if r.err == nil && f.full {
		c.settled(p, f.started)
	}
	p.readBefore = p.read
	first, last := c.contradicts(p, shows)
	overtaken := r.began < c.lists.asOf(p) || r.began <= last ||
		r.err == nil && r.status == nil && len(shows) > 0 && !c.matches(p, shows)
	looked := c.peeks.looked(p.uid)
	premature := first != 0 && r.began <= first.add(c.cfg.Grace)
	switch {
	case r.err != nil && (len(shows) == 0 || overtaken && c.matches(p, shows)):
		c.inspectFailed(p, r, now.sub(f.started), now)
	case f.started <= looked || r.began <= looked && !c.matches(p, shows):
		p.due = max(p.due, now) // the peek may have looked later, and is no whole look
	case overtaken: // by a list, or by a payload
		c.overtaken(p, r, f, shows, now)
	case premature: // a claim is believed for a grace
		p.notBefore = p.retry.climb(r.began, now, c.cfg.RereadBase, c.cfg.RelistMax)
		p.notBefore = min(p.notBefore, first.add(c.cfg.Grace).next())
		p.due = max(p.due, p.notBefore-1)
		if p.late != 0 {
			p.late = max(p.late, p.notBefore) // the read due is the look after an end, too
		}
		p.answer(r.began) // the read due answers; a new waiter has a read at once
	case c.doubt(p, shows, true) || f.wavered && p.doubted(): // one more look
		p.due = max(p.due, now-1)
		if f.lapped {
			p.undoubt() // a list that has ended since may have looked later, and has shown the ID
		}
	case r.err != nil:
		c.applyPart(p, r, f, shows, now)
	default:
		c.applyRead(p, r, f, shows, now)
	}
	if f.lapped && r.err == nil && p.differs() { // either may have looked last
		p.due = max(p.due, now-1)
	}
	c.review(p, now)
}

// answer ends the demands of waiters that a read begun at the given time answers.
func (p *pod) answer(began instant) {
	if began > p.want {
		p.want = 0
	}
	if began > p.content {
		p.content = 0
	}
}

// applyRead makes a read the state of the pod.
func (c *core[S]) applyRead(p *pod, r *inspected[S], f *flight, shows []Item, now instant) {
	switch {
	case len(shows) == 0:
		c.store(p, reading[S]{began: r.began}, now)
	case r.status != nil:
		if f.full {
			p.read = max(p.read, r.began)
		}
		c.store(p, reading[S]{status: r.status, items: shows, began: r.began}, now)
		c.unsettles(p)
	default:
		c.out.observe(p.uid, r.began)
		p.confirm(r.began)
	}
	c.resolve(p, r.began, nil)
	c.delay(p, r.began, now)
}

// applyPart makes what a read could get of a pod the state of the pod, beside the error of the
// rest. The IDs that could not be read stand as a list has shown them.
func (c *core[S]) applyPart(p *pod, r *inspected[S], f *flight, shows []Item, now instant) {
	c.failing(p, r, now)
	p.read = max(p.read, r.began)
	c.store(p, reading[S]{
		status: r.status,
		items:  shows,
		unread: r.unread,
		err:    r.err,
		began:  r.began,
	}, now)
	c.resolve(p, r.began, &r.unread)
	left := &r.unread
	if r.listing == nil {
		left = nil // nothing has looked at these
	}
	if p.expected.unmetBeside(left, r.began) { // what can be read is read as soon as of any other pod
		p.notBefore = p.retry.climb(r.began, now, c.cfg.RereadBase, c.cfg.RelistMax)
		return
	}
	c.delayFailed(p, r.began, now.sub(f.started), now)
}

// overtaken applies a read of a pod whose phases are known from later. If the read shows the same
// phases, its statuses are still news; else the pod is read again.
func (c *core[S]) overtaken(p *pod, r *inspected[S], f *flight, shows []Item, now instant) {
	if !c.matches(p, shows) {
		p.due = max(p.due, now-1)
		return
	}
	c.sighted(p, shows)
	if r.status != nil && f.full && r.began > p.read && p.entry == statusEntry {
		p.read = r.began
		c.peeks.brought(p.uid, now)
		c.keep(p, r.status)
	}
	c.delay(p, r.began, now)
}

// delay sets when a pod is read again without a demand.
func (c *core[S]) delay(p *pod, began, now instant) {
	switch {
	case p.unmet():
		p.notBefore = p.retry.climb(began, now, c.cfg.RereadBase, c.cfg.RelistMax)
	case c.cfg.Streams && p.teardown():
		p.notBefore = p.retry.climb(began, now, c.cfg.TeardownAgain, c.cfg.RelistMax)
	default:
		p.retry = ladder{}
		p.notBefore = 0
	}
}

// retryHung is the least time after which a read that fails has hung.
const retryHung = time.Second

// inspectFailed stores a read's failure beside the last status, unless something newer is known.
func (c *core[S]) inspectFailed(p *pod, r *inspected[S], took time.Duration, now instant) {
	c.failing(p, r, now)
	c.delayFailed(p, r.began, took, now)
	if r.began < c.lists.asOf(p) && p.content == 0 {
		return // a list has shown the same since
	}
	at := max(r.began, c.lists.asOf(p))
	c.out.do(action[S]{
		kind:    actFail,
		uid:     p.uid,
		at:      at,
		content: r.began,
		err:     r.err,
	})
	c.becomeFailed(p, at, max(len(p.items), len(r.unread.ids)), false)
	p.read = max(p.read, r.began)
}

// delayFailed delays the next read of a pod after a read that failed, whole or in part. A read
// that fails at once is tried again soon, as often as polling would; one that hung, more and more
// rarely.
func (c *core[S]) delayFailed(p *pod, began instant, took time.Duration, now instant) {
	most := c.cfg.RetryMax
	if took < retryHung {
		most = c.cfg.RetryBase
	}
	p.notBefore = p.retry.climb(began, now, c.cfg.RetryBase, most)
}

// failing counts a read that failed, whole or in part, and reports the first about the pod; of
// those that failed in part, the second in a row. On a busy node a status may come later than the
// others of its pod for once, and the next read, a second later, has it.
func (c *core[S]) failing(p *pod, r *inspected[S], now instant) {
	c.out.count[countInspectErrors]++
	first := p.entry != failedEntry
	if first {
		p.retry = ladder{}
	}
	again := r.status == nil || !first
	if p.accused || !again || r.began < c.lists.asOf(p) && p.content == 0 {
		return
	}
	p.accused = true
	c.out.report(Report{
		Reason:  ReasonInspectFailed,
		Action:  "Inspect",
		Warning: true,
		Note:    "the pod's status cannot be read: " + r.err.Error(),
		Pod:     &PodRef{UID: p.uid, Name: p.name, Namespace: p.namespace},
	})
}

// review follows up on any change of a pod: the pod is queued for a read if need be, and forgotten
// if nothing is left.
func (c *core[S]) review(p *pod, now instant) {
	if c.pods[p.uid] != p {
		return // forgotten
	}
	at := c.lists.asOf(p)
	if p.want != 0 && at > p.want {
		p.want = 0
	}
	if p.entry == statusEntry && !p.onRota {
		p.onRota = true
		c.rota.join(p, c.cfg.Reread, now)
	}
	if p.content != 0 && c.lists.readAt(p) > p.content {
		p.content = 0
	}
	if p.due != 0 && at > p.due {
		p.due = 0
	}
	if p.late != 0 && p.late <= now && len(c.lanes[laneFirst].waiting) >= c.cfg.InspectWorkers {
		p.late = c.rota.putOff(&c.lanes[laneFirst].limiter, now) // other pods need their reads more
	}
	next := c.nextRead(p)
	forget := next == never && p.empty()
	c.lists.done(p, forget)
	c.out.advance(c.lists.advance())
	if forget {
		c.uncertain = max(c.uncertain, p.unlisted)
		c.floor = max(c.floor, p.asOf)
		delete(c.pods, p.uid)
	}
	if next == never {
		delete(c.dirty, p)
		if !p.queued {
			p.since = 0
		}
		return
	}
	c.dirty[p] = struct{}{}
	c.considerPeek(p, now)
	switch {
	case p.reading || p.queued:
	case next <= now:
		if p.since == 0 {
			p.since = now
		}
		p.queued = true
		c.lanes[p.lane()].push(waiter[*pod]{p, p.since})
	case p.later == 0 || next < p.later:
		p.later = next
		heap.Push(&c.later, laterEntry{at: next, pod: p})
	}
}

// nextRead returns when the next read of the pod is due; never if none is.
func (c *core[S]) nextRead(p *pod) instant {
	at := never
	if p.unmet() || p.entry == failedEntry || c.cfg.Streams && p.teardown() {
		at = max(p.hold, p.notBefore)
	}
	if p.want != 0 {
		at = min(at, p.want.next())
	}
	if p.content != 0 {
		at = min(at, p.content.next())
	}
	if p.due != 0 {
		at = min(at, max(p.hold, p.due.next()))
	}
	at = c.lists.comesFirst(at, c.cfg.ListFirst)
	if p.late != 0 && p.entry == statusEntry {
		at = min(at, p.late)
	}
	if p.force != 0 && p.entry != failedEntry {
		next := p.force.next()
		if p.forced != 0 {
			next = max(next, p.forced.add(c.cfg.ForceAgain))
		}
		at = min(at, next)
	}
	return at
}

// dispatch starts the reads due. A list of everything replaces the reads of many pods.
func (c *core[S]) dispatch(now instant) {
	if c.sweeps(now) {
		c.out.count[countSweeps]++
		c.list(now)
	}
	for i := range c.lanes {
		for c.lanes[i].may(now) {
			p := c.lanes[i].take(now)
			p.queued = false
			if c.pods[p.uid] == p && c.nextRead(p) <= now {
				c.inspect(p, i, now)
			} else {
				c.review(p, now)
			}
		}
	}
}

// sweeps reports whether a list of everything is to replace the reads of many pods, all of which
// have come to need a read since the last list began: at once if waiters want so many, else a base
// period after the last list, or a flood of claims would be a flood of lists.
func (c *core[S]) sweeps(now instant) bool {
	queue := c.lanes[laneFirst].waiting
	if c.lists.inflight || c.lists.err != nil || now <= c.trust.sched.ended {
		return false
	}
	if len(queue) < c.cfg.SweepAt || queue[len(queue)-c.cfg.SweepAt].since <= c.lists.began {
		return false
	}
	if now >= c.trust.sched.ended.add(c.cfg.SweepAgain) {
		return true
	}
	waited := 0
	looks := 4 * c.cfg.SweepAt
	for _, w := range slices.Backward(queue) {
		looks--
		if looks < 0 || w.since <= c.lists.began {
			return false
		}
		p := w.pod
		wants := p.want != 0 && p.want < now || p.content != 0 && p.content < now
		if wants && p.force == 0 && p.entry == statusEntry && !p.unmet() && !p.differs() {
			waited++
			if waited >= c.cfg.SweepAt {
				return true
			}
		}
	}
	return false
}

// nextWorker returns when the pods in the lanes may get another worker without the end of a read.
func (c *core[S]) nextWorker() instant {
	at := never
	for i := range c.lanes {
		at = min(at, c.lanes[i].next(c.ticked))
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
