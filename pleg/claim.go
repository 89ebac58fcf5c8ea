// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

// latestClaim is one ID that the stream told of, in the latest phase that it told.
type latestClaim struct {
	item   Item
	stamp  int64 // of the claim that told that phase, Unix nanoseconds
	events heardEvents
}

// podClaims is what the stream told of one pod since the loop last looked.
type podClaims[S any] struct {
	pod     cache.UID // empty when the claims did not say
	latest  []latestClaim
	index   map[string]int // of told by ID, once there are many
	claims  int
	payload []Item
	status  func() (*S, error)
	release func() // of the payload and the status, nil if there is nothing to release
}

// drop releases the payload.
func (pc *podClaims[S]) drop() {
	if pc.release != nil {
		pc.release()
	}
	pc.payload, pc.status, pc.release = nil, nil, nil
}

// mailbox takes claims from the stream's receive loop and hands them to the generator's loop,
// merged by pod. Putting never blocks, because a client that stops reading stops the runtime; what
// it holds is bounded by the IDs told of, at any rate of claims. The mutex owns everything.
type mailbox[S any] struct {
	wake chan struct{} // capacity 1: letters that are already announced need not be announced again
	max  int

	mu       sync.Mutex
	byPod    map[cache.UID]*podClaims[S]
	order    []*podClaims[S] // oldest first, so that a history replays the same way
	free     []*podClaims[S] // emptied letters, to be used again
	ids      int
	claims   int // received since the last take
	replayed int
	dropped  int
	// disordered counts claims that came twice, or after a later one of the same container.
	disordered int
}

func newMailbox[S any](max int) *mailbox[S] {
	return &mailbox[S]{wake: make(chan struct{}, 1), max: max, byPod: make(map[cache.UID]*podClaims[S])}
}

// manyIDs is the number of IDs in one letter from which on they are indexed.
const manyIDs = 16

// put merges a claim. Replayed says that its stamp is not of the time since the stream was opened.
// It never blocks.
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

// record records the claim's own ID in the letter. It reports whether there was room.
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

// batch is what the loop takes from the mailbox at once.
type batch[S any] struct {
	pods                                  []*podClaims[S]
	claims, replayed, dropped, disordered int
}

// take empties the mailbox into b, whose letters must have been given back with recycle.
func (m *mailbox[S]) take(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.pods, m.order = m.order, b.pods[:0]
	b.claims, b.replayed, b.dropped, b.disordered = m.claims, m.replayed, m.dropped, m.disordered
	m.claims, m.replayed, m.dropped, m.disordered, m.ids = 0, 0, 0, 0, 0
	clear(m.byPod)
}

// maxFree bounds the letters kept for use again.
const maxFree = 256

// recycle gives the batch's letters back.
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

// onClaims applies what the stream told since the last time.
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

// discard counts claims for which there was no room. A list tells what they would have told, but
// not sooner than a base period after the last one: there may be any number of them.
func (c *core[S]) discard(n int, now instant) {
	c.count.dropped += n
	c.lastDiscard = now
	c.sched.ask(now, false)
}

// news is what a claim of one ID has told.
type news uint8

const (
	noNews   news = iota // nothing that was not known
	someNews             // something new
	noRoom               // of one more unknown ID than there is room for
)

// onPodClaims applies what the stream told of one pod, and returns how many of the claims told
// nothing new.
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
				c.discard(0, now) // the claim itself is counted above
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

// onUnownedClaims applies claims that do not say whose they are (CRI pod_sandbox_status nil): reads
// know it of every ID that they have shown, and a list will tell of the others.
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
		c.count.ownerConflicts++ // reads say whose it is
		p = x.pod
		c.reviewLater(p)
	}
	x.claimed = max(x.claimed, claim.item.Phase)
	if x.kind == Container {
		c.onHeard(x, claim.events)
	}
	if claim.item.Phase == x.phase && x.statusUnknown && x.cached != phaseNone && x.phase != PhaseRemoved {
		x.cached = PhaseUnknown // told again, of a state that reads did not know: the next read may know
		c.noteChange(p, now)
	}
	if claim.item.Phase <= x.phase {
		return noNews
	}
	c.setPhase(x, claim.item.Phase, CauseClaim, true, claim.stamp, now)
	c.noteChange(p, now)
	return someNews
}

// onHeard counts what is wrong with the events of a container: those out of order, and a removal
// of what is believed to run when no event has told of its end.
func (c *core[S]) onHeard(x *item, events heardEvents) {
	c.count.disordered += events.disordered(x.events)
	x.events |= events
	if events.has(PhaseRemoved) && x.phase == PhaseRunning && !x.events.has(PhaseExited) {
		c.count.untoldExits++
	}
}

// onUnknownID applies the claim of an ID that no read has shown: the ID is told to nobody until a
// read shows it, because a runtime may replay the history of pods long gone. That such an ID is
// gone needs no read; but it is remembered for the grace and for as long as a read is under way
// that began by then, because a runtime may tell of a removal before its lists show it.
func (c *core[S]) onUnknownID(p *pod, claim latestClaim, now instant) news {
	s, known := p.unconfirmed[claim.item.ID]
	if known && claim.item.Phase <= s.phase {
		return noNews
	}
	if !known {
		if c.unconfirmed >= c.cfg.UnconfirmedMax {
			return noRoom // to be looked at one by one
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

// offer stores a claim's payload as the pod's status if it dominates what is known: if it shows
// exactly the live IDs, none at an earlier phase. It is stored under the time of the read that it
// builds on: it makes nothing fresh, and any later read replaces it.
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
			return // reads show that the runtime does not know: who has told of this, and when, nobody knows
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
