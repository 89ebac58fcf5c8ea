// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

// latestClaim is the furthest phase reported by the stream for an ID since the loop last looked.
type latestClaim struct {
	item  Item
	stamp int64 // of the claim of that phase, Unix nanoseconds; 0 if none
}

// podClaims are the stream's reports of a pod since the loop last looked.
type podClaims[S any] struct {
	pod     cache.UID // empty when the claims named no pod
	latest  []latestClaim
	index   map[string]int // into latest, by ID; nil up to manyIDs
	claims  int
	payload []Item
	status  func() (*S, error)
	release func() // gives back the payload and the status; nil if nothing is to be given back
}

// drop releases the payload.
func (pc *podClaims[S]) drop() {
	if pc.release != nil {
		pc.release()
	}
	pc.payload, pc.status, pc.release = nil, nil, nil
}

// mailbox takes claims from the stream's receive loop and hands them to the generator's loop,
// merged by pod. Putting never blocks, because a client that stops reading stops the runtime. The
// number of claimed IDs bounds the contents, at any rate of claims.
type mailbox[S any] struct {
	wake chan struct{} // capacity 1: one announcement stands for all waiting claims
	max  int

	mu       sync.Mutex // owns the fields below
	byPod    map[cache.UID]*podClaims[S]
	order    []*podClaims[S] // oldest first: a history replays the same way
	free     []*podClaims[S] // emptied, to be used again
	ids      int
	claims   int // received since the last take
	replayed int
	dropped  int
}

func newMailbox[S any](max int) *mailbox[S] {
	return &mailbox[S]{wake: make(chan struct{}, 1), max: max, byPod: make(map[cache.UID]*podClaims[S])}
}

// manyIDs is the number of IDs of a pod from which on the claims are indexed.
const manyIDs = 16

// put merges a claim. Replayed marks a stamp from before the stream was opened, or from the future.
// put never blocks.
func (m *mailbox[S]) put(c Claim[S], replayed bool) {
	m.mu.Lock()
	if kept := m.merge(c, replayed); !kept && c.Release != nil {
		c.Release()
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// merge reports whether the payload was kept.
func (m *mailbox[S]) merge(c Claim[S], replayed bool) (kept bool) {
	m.claims++
	if replayed {
		m.replayed++
	}
	pc := m.byPod[c.Pod]
	if pc == nil {
		if m.ids >= m.max {
			m.dropped++
			return false
		}
		if n := len(m.free); n > 0 {
			pc, m.free = m.free[n-1], m.free[:n-1]
		} else {
			pc = new(podClaims[S])
		}
		pc.pod = c.Pod
		m.byPod[c.Pod] = pc
		m.order = append(m.order, pc)
	}
	if !m.record(pc, c) {
		m.dropped++
		return false
	}
	pc.claims++
	if c.Status == nil && len(c.Payload) == 0 {
		return false
	}
	pc.drop()
	pc.payload, pc.status, pc.release = c.Payload, c.Status, c.Release
	return true
}

// record merges the claim's own ID into the pod's IDs, and reports whether there was room.
func (m *mailbox[S]) record(pc *podClaims[S], c Claim[S]) bool {
	claim := latestClaim{item: c.Item}
	if !c.CreatedAt.IsZero() {
		claim.stamp = c.CreatedAt.UnixNano()
	}
	at := -1
	if pc.index == nil {
		at = slices.IndexFunc(pc.latest, func(l latestClaim) bool { return l.item.ID == c.Item.ID })
	} else if i, ok := pc.index[c.Item.ID]; ok {
		at = i
	}
	if at >= 0 {
		if c.Item.Phase > pc.latest[at].item.Phase {
			pc.latest[at] = claim
		}
		return true
	}
	if m.ids >= m.max {
		return false
	}
	m.ids++
	pc.latest = append(pc.latest, claim)
	if pc.index != nil {
		pc.index[c.Item.ID] = len(pc.latest) - 1
	} else if len(pc.latest) > manyIDs {
		pc.index = make(map[string]int, 2*manyIDs)
		for i := range pc.latest {
			pc.index[pc.latest[i].item.ID] = i
		}
	}
	return true
}

// batch is everything taken from the mailbox at once.
type batch[S any] struct {
	pods                      []*podClaims[S]
	claims, replayed, dropped int
}

// take empties the mailbox into b, whose podClaims must have been given back with recycle.
func (m *mailbox[S]) take(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.pods, m.order = m.order, b.pods[:0]
	b.claims, b.replayed, b.dropped = m.claims, m.replayed, m.dropped
	m.claims, m.replayed, m.dropped, m.ids = 0, 0, 0, 0
	clear(m.byPod)
}

// maxFree bounds the podClaims kept for use again.
const maxFree = 256

// recycle gives the batch's podClaims back.
func (m *mailbox[S]) recycle(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, pc := range b.pods {
		pc.drop()
		if len(m.free) < maxFree && cap(pc.latest) <= manyIDs {
			clear(pc.latest)
			*pc = podClaims[S]{latest: pc.latest[:0]}
			m.free = append(m.free, pc)
		}
		b.pods[i] = nil
	}
}

// onClaims applies the claims since the last batch.
func (c *core[S]) onClaims(b *batch[S], now instant) {
	if b.claims == 0 {
		return
	}
	if c.conn.state == StreamOpening {
		c.step(inHeard, nil, now)
	}
	c.lastClaim = now
	c.count.claims += b.claims
	c.count.replayed += b.replayed
	if b.dropped > 0 {
		c.discard(b.dropped, now)
	}
	for _, pc := range b.pods {
		var p *pod
		if pc.pod != "" {
			p = c.ensure(pc.pod)
		}
		fresh := 0
		for _, claim := range pc.latest {
			if c.onClaim(p, claim, now) {
				fresh++
			}
		}
		if p != nil {
			for i, it := range pc.payload {
				if x := c.find(p, i, it.ID); it.Phase != PhaseUnknown && it.Phase < PhaseRemoved && (x == nil || x.phase < it.Phase) {
					c.onClaim(p, latestClaim{item: it}, now)
				}
			}
			c.offer(p, pc, now)
			c.review(p, now)
		}
		c.count.stale += max(0, pc.claims-fresh)
	}
}

// onClaim applies the claim of an ID, naming pod p or none, and reports whether the claim is news.
// The pod's items are looked at before the index, a look-up in which was a fifth of an exit.
func (c *core[S]) onClaim(p *pod, claim latestClaim, now instant) (fresh bool) {
	e := expectation{reportKey: reportKey{claim.item.ID, CauseClaim}, kind: claim.item.Kind, phase: claim.item.Phase, at: now, stamp: claim.stamp}
	if e.id == "" || e.phase > PhaseRemoved {
		return false
	}
	var x *item
	if p != nil {
		x = c.find(p, 0, e.id)
	}
	if x == nil {
		x = c.index[e.id]
	}
	if x != nil { // reads know the pod
		fresh = c.expect(x.pod, x, e, now)
		if x.pod != p {
			c.review(x.pod, now)
		}
		return fresh
	}
	if x := c.gone[e.id]; x != nil {
		x.claimed = max(x.claimed, e.phase)
		return false
	}
	if p != nil && (e.phase < PhaseRemoved || p.entry == foreignEntry) {
		return c.expect(p, nil, e, now)
	}
	return c.expectEarly(e, now)
}

// expectEarly keeps the report of an ID of no known pod, and reports whether the report is news. A
// read or a list will name the pod. The removal of an ID not shown by a read needs no read, but a
// read under way, or begun within the grace, may still show the ID.
func (c *core[S]) expectEarly(e expectation, now instant) bool {
	if old, ok := c.early[e.reportKey]; ok && old.phase >= e.phase {
		return false
	} else if !ok && len(c.early) >= c.cfg.UnconfirmedMax {
		c.discard(1, now)
		return true
	}
	c.early[e.reportKey] = e
	if e.phase < PhaseRemoved {
		c.uncertain = max(c.uncertain, now)
		c.sched.ask(now, false)
	}
	return true
}

// takeEarly makes the early reports of an ID expectations of the pod named by a read or a list, and
// reports whether there were any.
func (c *core[S]) takeEarly(p *pod, id string, now instant) (news bool) {
	for _, cause := range [...]Cause{CauseClaim, CauseAck} {
		if e, ok := c.early[reportKey{id, cause}]; ok {
			delete(c.early, e.reportKey)
			c.expect(p, c.find(p, 0, id), e, now)
			news = true
		}
	}
	return news
}

// expect adds the report of an event or an own call to the expectations of a pod, and reports
// whether the report is news. X is the ID's item in the pod, nil if there is none.
func (c *core[S]) expect(p *pod, x *item, e expectation, now instant) bool {
	if x != nil {
		x.announce(&e)
		if e.phase <= x.phase && !(e.phase == x.phase && x.shown == PhaseUnknown) {
			return false
		}
	}
	if old := p.expectation(e.id, e.cause); old == nil {
		if c.expected >= c.cfg.UnconfirmedMax && c.index[e.id] == nil && e.cause == CauseClaim {
			c.discard(1, now) // too many IDs not shown by a read
			return true
		}
		p.expected = append(p.expected, e)
		c.expected++
	} else if e.phase > old.phase {
		e.at = max(e.at, old.at) // an early one may be older
		*old = e
	} else {
		return false
	}
	if p.entry == failedEntry {
		return true // failures delay each other
	}
	p.retry, p.notBefore = ladder{}, now
	if p.calls > 0 || p.hold > now {
		p.notBefore = c.holdFor(p, now)
	}
	return true
}

// discard counts claims without room. A list replaces them, but no sooner than a base period after
// the last list: any number of claims may be discarded.
func (c *core[S]) discard(n int, now instant) {
	c.count.dropped += n
	c.lastDiscard = now
	c.sched.ask(now, false)
}

// resolve drops the expectations met or overruled by an applied read, begun at the given time. A
// claim is overruled if the read began a grace later and shows less: runtimes announce a removal
// before their reads show the removal. No runtime announces a creation, a start or an end before
// its reads show the ID, so a read begun later without the ID refutes the claim.
func (c *core[S]) resolve(p *pod, began instant) {
	if len(p.expected) == 0 {
		return
	}
	c.expected -= len(p.expected)
	p.expected = slices.DeleteFunc(p.expected, func(e expectation) bool {
		x := c.find(p, 0, e.id)
		switch {
		case x == nil && e.phase == PhaseRemoved:
			if began <= e.at.add(c.cfg.Grace) && len(c.early) < c.cfg.UnconfirmedMax {
				e.at = max(e.at, c.early[e.reportKey].at)
				c.early[e.reportKey] = e // another read may still show the ID
			}
		case x == nil || e.cause == CauseAck:
			if x != nil && began > e.at && x.phase < e.phase {
				x.claimed = x.phase // the call has failed, and explains no later change
			}
			return began > e.at
		case x.phase >= e.phase && x.shown != PhaseUnknown:
			f := c.inflight[p]
			return f == nil || f.began > e.at // else the read under way may show less
		case began <= e.at.add(c.cfg.Grace):
			return false
		case x.shown != PhaseUnknown:
			c.noteOverruled(x, e.phase)
			x.claimed = x.phase
		}
		return true
	})
	for i := range p.expected {
		if x := c.find(p, 0, p.expected[i].id); x != nil {
			x.announce(&p.expected[i]) // the refuted one of two may have lowered x.claimed
		}
	}
	c.expected += len(p.expected)
}
