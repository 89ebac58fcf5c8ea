// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

// latestClaim is the furthest phase that the stream has reported for one ID since the loop last
// looked.
type latestClaim struct {
	item   Item
	stamp  int64 // of the claim of that phase, Unix nanoseconds
	events heardEvents
}

// podClaims is what the stream has reported of one pod since the loop last looked.
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
// number of claimed IDs bounds the contents, at any rate of claims. The mutex owns every field
// below.
type mailbox[S any] struct {
	wake chan struct{} // capacity 1: one announcement stands for all waiting claims
	max  int

	mu       sync.Mutex
	byPod    map[cache.UID]*podClaims[S]
	order    []*podClaims[S] // oldest first, so that a history replays the same way
	free     []*podClaims[S] // emptied, to be used again
	ids      int
	claims   int // received since the last take
	replayed int
	dropped  int
	// disordered counts claims that came twice, or after a later claim of the same container.
	disordered int
}

func newMailbox[S any](max int) *mailbox[S] {
	return &mailbox[S]{wake: make(chan struct{}, 1), max: max, byPod: make(map[cache.UID]*podClaims[S])}
}

// manyIDs is the number of IDs of a pod from which on the claims are indexed.
const manyIDs = 16

// put merges a claim. Replayed says that the stamp is not from the time since the stream was
// opened. put never blocks.
func (m *mailbox[S]) put(c Claim[S], replayed bool) {
	m.mu.Lock()
	m.merge(c, replayed)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox[S]) merge(c Claim[S], replayed bool) {
	m.claims++
	kept := false
	defer func() {
		if !kept && c.Release != nil {
			c.Release()
		}
	}()
	if replayed {
		m.replayed++
	}
	pc := m.byPod[c.Pod]
	if pc == nil {
		if m.ids >= m.max {
			m.dropped++
			return
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
	if !m.record(pc, c, replayed) {
		m.dropped++
		return
	}
	pc.claims++
	if c.Status != nil || len(c.Payload) > 0 {
		pc.drop()
		pc.payload, pc.status, pc.release, kept = c.Payload, c.Status, c.Release, true
	}
}

// record merges the claim's own ID into the pod's. It reports whether there was room.
func (m *mailbox[S]) record(pc *podClaims[S], c Claim[S], replayed bool) bool {
	stamp, events := int64(0), heardEvents(0)
	if !replayed {
		events = 1 << c.Item.Phase
	}
	if !c.CreatedAt.IsZero() {
		stamp = c.CreatedAt.UnixNano()
	}
	at := -1
	if pc.index != nil {
		if i, ok := pc.index[c.Item.ID]; ok {
			at = i
		}
	} else {
		for i := range pc.latest {
			if pc.latest[i].item.ID == c.Item.ID {
				at = i
				break
			}
		}
	}
	if at >= 0 {
		if c.Item.Kind == Container {
			m.disordered += events.disordered(pc.latest[at].events)
		}
		events |= pc.latest[at].events
		if c.Item.Phase > pc.latest[at].item.Phase {
			pc.latest[at] = latestClaim{item: c.Item, stamp: stamp}
		}
		pc.latest[at].events = events
		return true
	}
	if m.ids >= m.max {
		return false
	}
	m.ids++
	pc.latest = append(pc.latest, latestClaim{c.Item, stamp, events})
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

// batch is everything that the loop takes from the mailbox at once.
type batch[S any] struct {
	pods                                  []*podClaims[S]
	claims, replayed, dropped, disordered int
}

// take empties the mailbox into b, whose podClaims must have been given back with recycle.
func (m *mailbox[S]) take(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.pods, m.order = m.order, b.pods[:0]
	b.claims, b.replayed, b.dropped, b.disordered = m.claims, m.replayed, m.dropped, m.disordered
	m.claims, m.replayed, m.dropped, m.disordered, m.ids = 0, 0, 0, 0, 0
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
	c.step(inHeard, now)
	c.count.claims += b.claims
	c.count.replayed += b.replayed
	c.count.disordered += b.disordered
	if b.dropped > 0 {
		c.discard(b.dropped, now)
	}
	for _, pc := range b.pods {
		c.count.stale += c.onPodClaims(pc, now)
	}
}

// discard counts claims without room. A list replaces them, but no sooner than a base period after
// the last list: any number of claims may be discarded.
func (c *core[S]) discard(n int, now instant) {
	c.count.dropped += n
	c.lastDiscard = now
	c.sched.ask(now, false)
}

// news is the outcome of the claim of one ID.
type news uint8

const (
	noNews   news = iota // nothing new
	someNews             // something new
	noRoom               // one more unknown ID than there is room for
)

// onPodClaims applies the claims of one pod, and returns the number of claims without news.
func (c *core[S]) onPodClaims(pc *podClaims[S], now instant) int {
	if pc.pod == "" {
		return c.onUnownedClaims(pc, now)
	}
	p := c.ensure(pc.pod)
	fresh := 0
	for _, claim := range pc.latest {
		switch c.onClaim(p, claim, now) {
		case someNews:
			fresh++
		case noRoom:
			fresh++
			c.discard(1, now)
		}
	}
	behind := false
	for i, it := range pc.payload {
		if it.ID == "" || it.Phase == PhaseUnknown || it.Phase == PhaseRemoved {
			continue
		}
		x := c.itemOf(p, i, it.ID)
		behind = behind || x != nil && x.phase > it.Phase
		if x == nil || x.phase < it.Phase {
			if c.onClaim(p, latestClaim{item: it}, now) == noRoom {
				c.discard(0, now) // the claim counts above
			}
		}
	}
	if behind {
		c.count.stalePayloads++
	}
	c.offer(p, pc, now)
	c.review(p, now)
	c.reviewAffected(now)
	return max(0, pc.claims-fresh)
}

// onUnownedClaims applies claims without a pod (CRI pod_sandbox_status nil): reads know the pod of
// every ID that they have shown, and a list will name the pods of the others.
func (c *core[S]) onUnownedClaims(pc *podClaims[S], now instant) int {
	fresh := 0
	for _, claim := range pc.latest {
		if x := c.index[claim.item.ID]; x != nil {
			if c.onClaim(x.pod, claim, now) == someNews {
				fresh++
			}
			c.reviewLater(x.pod)
			continue
		}
		s, known := c.unowned[claim.item.ID]
		if known && s.phase >= claim.item.Phase {
			continue
		}
		room := known || len(c.unowned) < c.cfg.UnconfirmedMax
		if room {
			c.unowned[claim.item.ID] = unconfirmedID{phase: claim.item.Phase, at: now, stamp: claim.stamp}
		} else {
			c.discard(1, now)
		}
		fresh++
		if claim.item.Phase != PhaseRemoved || !room {
			c.sched.ask(now, false)
		}
	}
	c.reviewAffected(now)
	return max(0, pc.claims-fresh)
}

// onClaim applies the claim of one ID.
func (c *core[S]) onClaim(p *pod, claim latestClaim, now instant) news {
	if claim.item.ID == "" || claim.item.Phase > PhaseRemoved {
		return noNews
	}
	x := c.itemOf(p, 0, claim.item.ID)
	if x == nil {
		return c.onUnknownID(p, claim, now)
	}
	if x.pod != p {
		c.count.ownerConflicts++ // the owner is the pod in which reads show the ID
		p = x.pod
		c.reviewLater(p)
	}
	x.claimed = max(x.claimed, claim.item.Phase)
	if x.kind == Container {
		c.onHeard(x, claim.events)
	}
	if claim.item.Phase == x.phase && x.statusUnknown && x.cached != phaseNone && x.phase != PhaseRemoved {
		x.cached = PhaseUnknown // a repeated claim of a state that reads did not know: the next read may know
		c.noteChange(p, now)
	}
	if claim.item.Phase <= x.phase {
		return noNews
	}
	c.setPhase(x, claim.item.Phase, CauseClaim, true, claim.stamp, now)
	c.noteChange(p, now)
	return someNews
}

// onHeard counts events of a container that are out of order, and removals of containers believed
// to run whose exit no event has announced.
func (c *core[S]) onHeard(x *item, events heardEvents) {
	c.count.disordered += events.disordered(x.events)
	x.events |= events
	if events.has(PhaseRemoved) && x.phase == PhaseRunning && !x.events.has(PhaseExited) {
		c.count.untoldExits++
	}
}

// onUnknownID applies the claim of an ID that no read has shown. Watch and cache show the ID only
// after a read has, because a runtime may replay the history of pods long gone. The claim of a
// removal needs no read, but stays remembered for the grace, and while a read is under way that
// began by then: a runtime may announce a removal before its lists show it.
func (c *core[S]) onUnknownID(p *pod, claim latestClaim, now instant) news {
	s, known := p.unconfirmed[claim.item.ID]
	if known && claim.item.Phase <= s.phase {
		return noNews
	}
	if !known {
		if c.unconfirmed >= c.cfg.UnconfirmedMax {
			return noRoom // too many to read their pods one by one
		}
		if p.unconfirmed == nil {
			p.unconfirmed = make(map[string]unconfirmedID)
		}
		c.unconfirmed++
	}
	p.unconfirmed[claim.item.ID] = unconfirmedID{phase: claim.item.Phase, at: now, stamp: claim.stamp}
	if claim.item.Phase == PhaseRemoved {
		c.expiring.push(expiry{at: now, pod: p})
		return someNews
	}
	c.noteChange(p, now)
	return someNews
}

// offer stores a claim's payload as the pod's status if the payload dominates what is known: if it
// shows exactly the live IDs, none at an earlier phase. The status is stored under the time of the
// read that it builds on: a payload makes nothing fresh, and any later read replaces it.
func (c *core[S]) offer(p *pod, pc *podClaims[S], now instant) {
	if pc.status == nil || !p.hasStatus || p.failed || p.disagrees || p.force != 0 || p.hasUnconfirmed() || p.settled() {
		return
	}
	c.marks++
	shown := 0
	for i, it := range pc.payload {
		x := c.itemOf(p, i, it.ID)
		if x == nil || x.pod != p || x.phase == PhaseRemoved || it.Phase != x.phase || x.mark == c.marks {
			return
		}
		if x.statusUnknown || x.cached == PhaseUnknown || x.cached == phaseNone && x.listed == PhaseUnknown {
			return // the runtime does not know the state: the origin and the age of this phase are unknown
		}
		x.mark = c.marks
		shown++
	}
	if shown == 0 || shown != p.live() {
		return
	}
	status, err := pc.status()
	if err != nil || status == nil {
		c.count.badPayloads++
		return
	}
	c.count.dominated++
	c.store(p, status, pc.payload, c.asOf(p), now) // not readAt: the latest read may have disagreed
}
