// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"container/heap"
	"iter"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// onDemand takes the cache's waiters: each wants a read of a pod begun after a time.
func (c *core[S]) onDemand(demand map[cache.UID]time.Time, now instant) {
	uids := make([]cache.UID, 0, len(demand))
	for uid := range demand {
		uids = append(uids, uid)
	}
	slices.Sort(uids) // so that a history replays the same way
	for _, uid := range uids {
		t, p := c.clock.instant(demand[uid]), c.ensure(uid)
		if p.asOf > t && !p.hasStatus && c.covered(p) <= t {
			t = max(p.asOf, p.read) // the cache has pruned the tombstone with the time at which the pod was found gone
		}
		c.wantRead(p, t, now)
	}
}

// wantRead demands a read of the pod that begins after t.
func (c *core[S]) wantRead(p *pod, t, now instant) {
	p.want, p.waited = max(p.want, t), max(p.waited, t)
	if p.failed {
		p.notYet = min(p.notYet, t.next())
	}
	c.review(p, now)
}

// request is an embedder's call of RequestRelist or RequestReinspect.
type request struct {
	uid     cache.UID
	inspect bool
}

// onRequest takes a request made before now.
func (c *core[S]) onRequest(r request, now instant) {
	switch {
	case r.inspect:
		p := c.ensure(r.uid)
		p.force, p.waited = max(p.force, now), max(p.waited, now)
		c.review(p, now)
	case r.uid == "":
		c.sched.ask(now, true)
	default:
		c.wantRead(c.ensure(r.uid), now, now)
	}
}

// review follows up on any change of a pod: emits what the cache shows, settles rounds, and queues
// the pod if it must be read.
func (c *core[S]) review(p *pod, now instant) {
	c.looks += uint64(len(p.items))
	settled := p.settled()
	if settled {
		c.emitChanges(p, now)
		if p.force == 0 && !p.failed && !p.statusUnknown() {
			p.listing = nil // else the statuses must be read all the same
		}
	}
	unsure := p.unsure()
	if !unsure {
		p.settle()
	}
	p.served(c.asOf(p))
	if c.settleRounds(p, now) {
		unsure = p.unsure()
	}
	teardown := !unsure && c.connected() && p.inTeardown()
	if !teardown {
		p.teardown = ladder{}
	} else if !p.teardown.climbed() {
		p.notYet = p.teardown.climb(now, now, c.firstLook(), c.cfg.RelistMax)
	}
	if !unsure && !teardown && !p.asked() {
		delete(c.dirty, p.uid)
		p.notYet = 0
		c.forget(p, now)
		return
	}
	c.dirty[p.uid] = p
	c.enqueue(p, now)
}

// reviewLater queues a pod other than the report's own for review after the whole report is
// applied: a report may take thousands of IDs from a pod, and a review visits all of its items.
func (c *core[S]) reviewLater(p *pod) {
	if !p.affected {
		p.affected = true
		c.affected = append(c.affected, p)
	}
}

// reviewAffected reviews the pods queued by reviewLater.
func (c *core[S]) reviewAffected(now instant) {
	for i, p := range c.affected {
		c.affected[i] = nil
		p.affected = false
		c.review(p, now)
	}
	c.affected = c.affected[:0]
}

// firstLook returns the first delay of a pod in teardown: some runtimes never announce the removal
// of a sandbox, and an agent that stops a pod mostly removes it soon.
func (c *core[S]) firstLook() time.Duration { return max(c.cfg.RelistBase/10, 1) }

// forget drops the record of a pod that is unknown and unwanted.
func (c *core[S]) forget(p *pod, now instant) {
	if len(p.items) == 0 && len(p.unconfirmed) == 0 && len(p.conflicts) == 0 && !p.foreign && !p.hasStatus && !c.reads(p) && !p.asked() && p.own.calls == 0 && c.pods[p.uid] == p {
		c.keepUncertainCreate(p, now)
		delete(c.pods, p.uid)
		delete(c.changedSinceList, p.uid)
		delete(c.unexpired, p.uid)
		delete(c.dirty, p.uid)
	}
}

// nextRead returns when the next read of the pod is due.
func (c *core[S]) nextRead(p *pod) instant {
	at := never
	if p.teardown.climbed() || p.unsure() {
		at = p.notYet
	}
	if p.want != 0 {
		at = min(at, c.notBefore(p, p.want))
	}
	if p.force != 0 {
		// At once the first time, then a base period apart, or a consumer that asks again after each event
		// would spin.
		at = min(at, max(c.notBefore(p, p.force), p.forced.after(c.cfg.RelistBase)))
	}
	return at
}

// notBefore returns the earliest begin of a read that must begin after t: right after t, unless a
// read from after t has already failed, or failed to settle the pod.
func (c *core[S]) notBefore(p *pod, t instant) instant {
	if max(p.read, p.asOf) > t {
		return max(t.next(), p.notYet)
	}
	return t.next()
}

// flight is a read of one pod that holds a worker.
type flight struct {
	began       instant // time of the result: begin of the list that the read builds on, or started
	started     instant // when a worker took the read up
	slow        bool    // the pod's previous read hung
	interrupted bool
}

// reads says that the pod is being read.
func (c *core[S]) reads(p *pod) bool { return p.reading }

// hungAfter, in base periods, is the age at which a read of one pod counts as hung: by then polling
// would have listed the whole runtime.
const hungAfter = 1

// mayHang returns the number of workers that hung reads may hold: half of all, or the only one.
func (c *core[S]) mayHang() int { return max(1, c.cfg.InspectWorkers/2) }

// hangs returns when a read under way counts as hung.
func (c *core[S]) hangs(f flight) instant {
	if f.slow {
		return f.started
	}
	return f.started.add(hungAfter*c.cfg.RelistBase) + 1
}

// hung counts reads under way that hang, and reads of pods whose last read hung.
func (c *core[S]) hung(now instant) int {
	n := 0
	for _, f := range c.inflight {
		if !f.interrupted && now >= c.hangs(f) {
			n++
		}
	}
	return n
}

// interruptHung ends hung reads beyond mayHang, youngest first, while other pods, none known to
// hang, wait for workers. An interrupted read has not failed: the pod waits for one of the workers
// that hung reads may hold, and is not interrupted again.
func (c *core[S]) interruptHung(now instant) {
	excess := c.hung(now) - c.mayHang()
	if excess <= 0 || !c.othersQueued() {
		return
	}
	c.requeue(now)
	for ; excess > 0 && c.othersQueued(); excess-- {
		p := c.youngestHung(now)
		f := c.inflight[p]
		f.interrupted = true
		c.inflight[p] = f
		c.count.interrupted++
		c.todo.do(action[S]{kind: actInterrupt, uid: p.uid})
	}
}

// othersQueued says that pods wait for a worker whose last reads did not hang.
func (c *core[S]) othersQueued() bool {
	for kind := inListed; kind < inSlow; kind++ {
		if c.queues[kind].len() > 0 {
			return true
		}
	}
	return false
}

// youngestHung returns the pod whose read began to hang last. There must be such a read of a pod
// not known to be slow: reads of slow pods never exceed mayHang.
func (c *core[S]) youngestHung(now instant) *pod {
	var found *pod
	for p, f := range c.inflight {
		if f.interrupted || f.slow || now < c.hangs(f) {
			continue
		}
		if g := c.inflight[found]; found == nil || f.started > g.started || f.started == g.started && p.uid > found.uid {
			found = p
		}
	}
	return found
}

// nextHung returns when the next read counts as hung, if pods wait for the workers.
func (c *core[S]) nextHung() instant {
	at := never
	if len(c.inflight) < c.cfg.InspectWorkers || !c.othersQueued() {
		return at
	}
	for _, f := range c.inflight {
		if h := c.hangs(f); h > c.expired { // else the last tick has handled it
			at = min(at, h)
		}
	}
	return at
}

// readEnded handles the end of a read. It reports whether the read failed only because it was
// interrupted.
func (c *core[S]) readEnded(p *pod, failed bool, now instant) (interrupted bool) {
	f := c.inflight[p]
	p.reading = false
	delete(c.inflight, p)
	interrupted = f.interrupted && failed
	f.slow = false
	p.slow = interrupted || now >= c.hangs(f)
	return interrupted
}

// fifo is a queue over a slice.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }
func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) front() (v T, ok bool) {
	if q.head == len(q.items) {
		return v, false
	}
	return q.items[q.head], true
}

// all yields the queue, front first.
func (q *fifo[T]) all() iter.Seq[T] { return slices.Values(q.items[q.head:]) }

// keep removes all other entries.
func (q *fifo[T]) keep(kept func(T) bool) {
	rest := slices.DeleteFunc(q.items[q.head:], func(v T) bool { return !kept(v) })
	q.items = q.items[:q.head+len(rest)]
}

// pop removes the front, which must exist.
func (q *fifo[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}

// laterEntry is a pod to look at again at a time. An entry of a pod rescheduled since is stale, and
// ignored.
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
