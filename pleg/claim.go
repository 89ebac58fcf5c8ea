// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

// told is one ID that the stream told of, in the latest phase that it told.
type told struct {
	item   Item
	stamp  int64 // of the claim that told that phase, Unix nanoseconds
	events heardEvents
}

// letter is what the stream told of one pod since the loop last looked.
type letter[S any] struct {
	pod     cache.UID // empty when the claims did not say
	told    []told
	index   map[string]int // of told by ID, once there are many
	claims  int
	payload []Item
	status  func() (*S, error)
	release func() // of the payload and the status, nil if there is nothing to release
}

// drop releases the payload.
func (l *letter[S]) drop() {
	if l.release != nil {
		l.release()
	}
	l.payload, l.status, l.release = nil, nil, nil
}

// mailbox takes claims from the stream's receive loop and hands them to the generator's loop,
// merged by pod. Putting never blocks, because a client that stops reading stops the runtime; what
// it holds is bounded by the IDs told of, at any rate of claims. The mutex owns everything.
type mailbox[S any] struct {
	wake chan struct{} // capacity 1: letters that are already announced need not be announced again
	max  int

	mu       sync.Mutex
	byPod    map[cache.UID]*letter[S]
	order    []*letter[S] // oldest first, so that a history replays the same way
	free     []*letter[S] // emptied letters, to be used again
	ids      int
	claims   int // received since the last take
	replayed int
	dropped  int
	// disordered counts claims that came twice, or after a later one of the same container.
	disordered int
}

func newMailbox[S any](max int) *mailbox[S] {
	return &mailbox[S]{wake: make(chan struct{}, 1), max: max, byPod: make(map[cache.UID]*letter[S])}
}

// manyTold is the number of IDs in one letter from which on they are indexed.
const manyTold = 16

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
	l := m.byPod[c.Pod]
	if l == nil {
		if m.ids >= m.max {
			m.dropped++
			return
		}
		if n := len(m.free); n > 0 {
			l, m.free = m.free[n-1], m.free[:n-1]
		} else {
			l = new(letter[S])
		}
		l.pod = c.Pod
		m.byPod[c.Pod] = l
		m.order = append(m.order, l)
	}
	if !m.tell(l, c, replayed) {
		m.dropped++
		return
	}
	l.claims++
	if c.Status != nil || len(c.Payload) > 0 {
		l.drop()
		l.payload, l.status, l.release, kept = c.Payload, c.Status, c.Release, true
	}
}

// tell records the claim's own ID in the letter. It reports whether there was room.
func (m *mailbox[S]) tell(l *letter[S], c Claim[S], replayed bool) bool {
	stamp, events := int64(0), heardEvents(0)
	if !replayed {
		events = 1 << c.Item.Phase
	}
	if !c.CreatedAt.IsZero() {
		stamp = c.CreatedAt.UnixNano()
	}
	at := -1
	if l.index != nil {
		if i, ok := l.index[c.Item.ID]; ok {
			at = i
		}
	} else {
		for i := range l.told {
			if l.told[i].item.ID == c.Item.ID {
				at = i
				break
			}
		}
	}
	if at >= 0 {
		if c.Item.Kind == Container {
			m.disordered += events.disordered(l.told[at].events)
		}
		events |= l.told[at].events
		if c.Item.Phase > l.told[at].item.Phase {
			l.told[at] = told{item: c.Item, stamp: stamp}
		}
		l.told[at].events = events
		return true
	}
	if m.ids >= m.max {
		return false
	}
	m.ids++
	l.told = append(l.told, told{c.Item, stamp, events})
	if l.index != nil {
		l.index[c.Item.ID] = len(l.told) - 1
	} else if len(l.told) > manyTold {
		l.index = make(map[string]int, 2*manyTold)
		for i := range l.told {
			l.index[l.told[i].item.ID] = i
		}
	}
	return true
}

// batch is what the loop takes from the mailbox at once.
type batch[S any] struct {
	letters                               []*letter[S]
	claims, replayed, dropped, disordered int
}

// take empties the mailbox into b, whose letters must have been given back with recycle.
func (m *mailbox[S]) take(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.letters, m.order = m.order, b.letters[:0]
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
	for i, l := range b.letters {
		l.drop()
		if len(m.free) < maxFree && cap(l.told) <= manyTold {
			clear(l.told)
			*l = letter[S]{told: l.told[:0]}
			m.free = append(m.free, l)
		}
		b.letters[i] = nil
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
	for _, l := range b.letters {
		c.count.stale += c.onLetter(l, now)
	}
}

// discard counts claims for which there was no room. A list tells what they would have told, but
// not sooner than a base period after the last one: there may be any number of them.
func (c *core[S]) discard(n int, now instant) {
	c.count.dropped += n
	c.deaf = now
	c.sched.ask(now, false)
}

// news is what a claim of one ID has told.
type news uint8

const (
	noNews   news = iota // nothing that was not known
	someNews             // something new
	tooMuch              // of one more unknown ID than there is room for
)

// onLetter applies what the stream told of one pod, and returns how many of the claims told nothing
// new.
func (c *core[S]) onLetter(l *letter[S], now instant) int {
	if l.pod == "" {
		return c.onHomeless(l, now)
	}
	p := c.ensure(l.pod)
	fresh := 0
	for _, t := range l.told {
		switch c.onTold(p, t, now) {
		case someNews:
			fresh++
		case tooMuch:
			fresh++
			c.discard(1, now)
		}
	}
	behind := false
	for i, it := range l.payload {
		if it.ID == "" || it.Phase == PhaseUnknown || it.Phase == PhaseRemoved {
			continue
		}
		x := c.itemOf(p, i, it.ID)
		behind = behind || x != nil && x.phase > it.Phase
		if x == nil || x.phase < it.Phase {
			if c.onTold(p, told{item: it}, now) == tooMuch {
				c.discard(0, now) // the claim itself is counted above
			}
		}
	}
	if behind {
		c.count.behind++
	}
	c.offer(p, l, now)
	c.review(p, now)
	c.reviewAffected(now)
	return max(0, l.claims-fresh)
}

// onHomeless applies claims that do not say whose they are (CRI pod_sandbox_status nil): reads know
// it of every ID that they have shown, and a list will tell of the others.
func (c *core[S]) onHomeless(l *letter[S], now instant) int {
	fresh := 0
	for _, t := range l.told {
		if x := c.index[t.item.ID]; x != nil {
			if c.onTold(x.pod, t, now) == someNews {
				fresh++
			}
			c.reviewLater(x.pod)
			continue
		}
		s, known := c.homeless[t.item.ID]
		if known && s.phase >= t.item.Phase {
			continue
		}
		room := known || len(c.homeless) < c.cfg.SuspectMax
		if room {
			c.homeless[t.item.ID] = suspect{phase: t.item.Phase, at: now, stamp: t.stamp}
		} else {
			c.discard(1, now)
		}
		fresh++
		if t.item.Phase != PhaseRemoved || !room {
			c.sched.ask(now, false)
		}
	}
	c.reviewAffected(now)
	return max(0, l.claims-fresh)
}

// onTold applies the claim of one ID.
func (c *core[S]) onTold(p *pod, t told, now instant) news {
	if t.item.ID == "" || t.item.Phase > PhaseRemoved {
		return noNews
	}
	x := c.itemOf(p, 0, t.item.ID)
	if x == nil {
		return c.onStranger(p, t, now)
	}
	if x.pod != p {
		c.count.conflicts++ // reads say whose it is
		p = x.pod
		c.reviewLater(p)
	}
	x.claimed = max(x.claimed, t.item.Phase)
	if x.kind == Container {
		c.onHeard(x, t.events)
	}
	if t.item.Phase == x.phase && x.blank && x.cached != phaseNone && x.phase != PhaseRemoved {
		x.cached = PhaseUnknown // told again, of a state that reads did not know: the next read may know
		c.stir(p, now)
	}
	if t.item.Phase <= x.phase {
		return noNews
	}
	c.setPhase(x, t.item.Phase, CauseClaim, true, t.stamp, now)
	c.stir(p, now)
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

// onStranger applies the claim of an ID that no read has shown: the ID is told to nobody until a
// read shows it, because a runtime may replay the history of pods long gone. That such an ID is
// gone needs no read; but it is remembered for the grace and for as long as a read is under way
// that began by then, because a runtime may tell of a removal before its lists show it.
func (c *core[S]) onStranger(p *pod, t told, now instant) news {
	s, known := p.suspects[t.item.ID]
	if known && t.item.Phase <= s.phase {
		return noNews
	}
	if !known {
		if c.suspects >= c.cfg.SuspectMax {
			return tooMuch // to be looked at one by one
		}
		if p.suspects == nil {
			p.suspects = make(map[string]suspect)
		}
		c.suspects++
	}
	p.suspects[t.item.ID] = suspect{phase: t.item.Phase, at: now, stamp: t.stamp}
	if t.item.Phase == PhaseRemoved {
		c.expiring.push(expiry{at: now, pod: p})
		return someNews
	}
	c.stir(p, now)
	return someNews
}

// offer stores a claim's payload as the pod's status if it dominates what is known: if it shows
// exactly the live IDs, none at an earlier phase. It is stored under the time of the read that it
// builds on: it makes nothing fresh, and any later read replaces it.
func (c *core[S]) offer(p *pod, l *letter[S], now instant) {
	if l.status == nil || !p.hasStatus || p.failed || p.disagrees || p.force != 0 || p.suspected() || p.settled() {
		return
	}
	c.marks++
	shown := 0
	for i, it := range l.payload {
		x := c.itemOf(p, i, it.ID)
		if x == nil || x.pod != p || x.phase == PhaseRemoved || it.Phase != x.phase || x.mark == c.marks {
			return
		}
		if x.blank || x.cached == PhaseUnknown || x.cached == phaseNone && x.listed == PhaseUnknown {
			return // reads show that the runtime does not know: who has told of this, and when, nobody knows
		}
		x.mark = c.marks
		shown++
	}
	if shown == 0 || shown != p.live() {
		return
	}
	status, err := l.status()
	if err != nil || status == nil {
		c.count.badPayloads++
		return
	}
	c.count.dominated++
	c.store(p, status, l.payload, c.asOf(p), now) // not readAt: the latest read may have disagreed
}
