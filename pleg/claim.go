// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

// onClaims applies what the stream told since the last time.
func (c *core[S]) onClaims(b *batch[S], now instant) {
	if b.claims == 0 {
		return
	}
	c.step(inHeard, now)
	c.count.claims += b.claims
	c.count.replayed += b.replayed
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
	for i, it := range l.payload {
		if it.ID == "" || it.Phase == PhaseUnknown || it.Phase == PhaseRemoved {
			continue
		}
		if x := c.itemOf(p, i, it.ID); x == nil || x.phase < it.Phase {
			if c.onTold(p, told{item: it}, now) == tooMuch {
				c.discard(0, now) // the claim itself is counted above
			}
		}
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
	x := c.index[t.item.ID]
	if x == nil {
		return c.onStranger(p, t, now)
	}
	if x.pod != p {
		c.count.conflicts++ // reads say whose it is
		p = x.pod
		c.reviewLater(p)
	}
	x.claimed = max(x.claimed, t.item.Phase)
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
		if x.blank || x.cached == PhaseUnknown {
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
