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
	c.cfg.Metrics.Add(MetricClaims, b.claims)
	if b.replayed > 0 {
		c.count.replayed += b.replayed
		c.cfg.Metrics.Add(MetricReplayedClaims, b.replayed)
	}
	if b.dropped > 0 {
		c.count.dropped += b.dropped
		c.cfg.Metrics.Add(MetricDiscardedClaims, b.dropped)
		c.deaf = now
		c.sched.ask(now, true) // a list tells what they would have told
	}
	stale := 0
	for _, l := range b.letters {
		stale += c.onLetter(l, now)
	}
	if stale > 0 {
		c.count.stale += stale
		c.cfg.Metrics.Add(MetricStaleClaims, stale)
	}
}

// onLetter applies what the stream told of one pod, and returns how many of the claims told nothing new.
func (c *core[S]) onLetter(l *letter[S], now instant) int {
	if l.pod == "" {
		return c.onHomeless(l, now)
	}
	p := c.ensure(l.pod)
	fresh := 0
	for _, t := range l.told {
		if c.onTold(p, t, now) {
			fresh++
		}
	}
	for i, it := range l.payload {
		if it.ID == "" || it.Phase == PhaseUnknown || it.Phase == PhaseRemoved {
			continue
		}
		if x := c.itemOf(p, i, it.ID); x == nil || x.phase < it.Phase {
			c.onTold(p, told{item: it}, now)
		}
	}
	c.offer(p, l, now)
	c.review(p, now)
	return max(0, l.claims-fresh)
}

// onHomeless applies claims that do not say whose they are (CRI pod_sandbox_status nil): reads know it of every ID that they have shown, and a list
// will tell of the others.
func (c *core[S]) onHomeless(l *letter[S], now instant) int {
	fresh := 0
	for _, t := range l.told {
		if x := c.index[t.item.ID]; x != nil {
			if c.onTold(x.pod, t, now) {
				fresh++
			}
			c.review(x.pod, now)
			continue
		}
		s, known := c.homeless[t.item.ID]
		if known && s.phase >= t.item.Phase || !known && t.item.Phase == PhaseRemoved && !c.lists.inflight && len(c.inflight) == 0 {
			continue
		}
		if known || len(c.homeless) < c.cfg.SuspectMax {
			c.homeless[t.item.ID] = suspect{phase: t.item.Phase, at: now, stamp: t.stamp}
		} else {
			c.deaf = now
		}
		fresh++
		c.sched.ask(now, false)
	}
	return max(0, l.claims-fresh)
}

// onTold applies the claim of one ID, and reports whether it told anything new.
func (c *core[S]) onTold(p *pod, t told, now instant) bool {
	if t.item.ID == "" || t.item.Phase > PhaseRemoved {
		return false
	}
	x := c.index[t.item.ID]
	if x == nil {
		return c.onStranger(p, t, now)
	}
	if x.pod != p {
		c.count.conflicts++ // reads say whose it is
		p = x.pod
		defer c.review(p, now)
	}
	x.claimed = max(x.claimed, t.item.Phase)
	if t.item.Phase <= x.phase {
		return false
	}
	c.setPhase(x, t.item.Phase, CauseClaim, true, t.stamp, now)
	p.moved, p.notYet, p.reread = now, 0, 0
	return true
}

// onStranger applies the claim of an ID that no read has shown: it is told to nobody until a read shows it, because a runtime may
// replay the history of pods long gone.
func (c *core[S]) onStranger(p *pod, t told, now instant) bool {
	s, known := p.suspects[t.item.ID]
	if known && t.item.Phase <= s.phase {
		return false
	}
	if !known {
		if t.item.Phase == PhaseRemoved && len(c.inflight) == 0 && !c.lists.inflight && p.listing == nil {
			return false // it came and went between two reads, and no read under way can show it
		}
		if c.suspects >= c.cfg.SuspectMax {
			c.deaf = now
			c.sched.ask(now, true) // too many to look at one by one
			return false
		}
		if p.suspects == nil {
			p.suspects = make(map[string]suspect)
		}
		c.suspects++
	}
	p.suspects[t.item.ID] = suspect{phase: t.item.Phase, at: now, stamp: t.stamp}
	p.moved, p.notYet, p.reread = now, 0, 0
	if t.item.Phase == PhaseRemoved {
		c.expiring.push(expiry{at: now, pod: p})
	}
	return true
}

// offer stores a claim's payload as the pod's status if it dominates what is known: if it shows exactly the live IDs, none at an earlier
// phase. It is stored under the time of the read that it builds on: it makes nothing fresh, and any later read replaces it.
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
