// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// onClaims applies the claims since the last batch.
func (c *core[S]) onClaims(b *batch[S], now instant) {
	if b.claims == 0 {
		return
	}
	if c.stream.state == StreamOpening {
		c.stepStream(inHeard, nil, now)
	}
	c.trust.lastClaim = now
	c.out.add(countClaims, b.claims)
	c.out.add(countReplayed, b.replayed)
	if b.dropped > 0 {
		c.discard(b.dropped, now)
	}
	for _, pc := range b.pods {
		fresh := c.onPodClaims(pc, now)
		c.out.add(countStale, max(0, pc.claims-fresh))
	}
}

// onPodClaims applies the claims of a pod, and returns the number of those that were news.
func (c *core[S]) onPodClaims(pc *podClaims[S], now instant) (fresh int) {
	var p *pod
	if pc.pod != "" {
		p = c.ensure(pc.pod)
	}
	for _, claim := range pc.latest {
		c.trust.heard(claim.item.Phase)
		if c.onClaim(p, claim, now) {
			fresh++
		}
	}
	if p == nil {
		return fresh
	}
	news := fresh > 0
	for i, it := range pc.payload {
		if it.Phase == PhaseUnknown || it.Phase >= PhaseRemoved {
			continue
		}
		x := c.find(p, i, it.ID)
		if x == nil || x.phase < it.Phase {
			news = c.onClaim(p, latestClaim{item: it}, now) || news
		}
	}
	if news { // else reads may have looked later than the payload, which is told once more
		c.offer(p, pc, now)
	}
	if pc.updates {
		p.ask(wanted{content: now}, 0)
	}
	c.review(p, now)
	return fresh
}

// onClaim applies the claim of an ID, naming pod p or none, and reports whether the claim is
// news. The pod's items are looked at before the index, a look-up in which was a fifth of an
// exit.
func (c *core[S]) onClaim(p *pod, claim latestClaim, now instant) (fresh bool) {
	e := expectation{
		reportKey: reportKey{claim.item.ID, CauseClaim},
		kind:      claim.item.Kind,
		phase:     claim.item.Phase,
		at:        now,
		stamp:     claim.stamp,
	}
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
	if e.phase == PhaseUnknown { // of a type of a later CRI: its pod's fields may have changed
		if p == nil && x != nil {
			x.pod.ask(wanted{force: now}, 0)
			c.review(x.pod, now)
		}
		return p != nil || x != nil
	}
	if x != nil { // reads know the pod
		fresh = c.expect(x.pod, x, e, now)
		if !fresh {
			c.reads.toldAgain(x.pod, x, claim, c.cfg.Grace)
			c.peeks.toldAgain(x, claim, c.cfg.Grace)
		}
		if x.pod != p {
			c.review(x.pod, now)
		}
		return fresh
	}
	if was := c.gone[e.id]; was.open {
		was.of.announce(&e)
		return false
	}
	if p != nil && (e.phase < PhaseRemoved || p.entry == foreignEntry) {
		fresh = c.expect(p, nil, e, now)
		if !fresh {
			c.reads.toldAgain(p, nil, claim, c.cfg.Grace)
		}
		return fresh
	}
	return c.expectEarly(e, now)
}

// retold are the claims that were no news when they came, by ID, and came while a look was under
// way that may have looked before: of each ID the furthest. If the look refutes what was told
// before it began, or takes back what the cache shows, they are news.
type retold map[string]retelling

type retelling struct {
	claim latestClaim
	shown bool // the status showed the ID
}

// note keeps a claim of an ID of the pod if a look begun at the given time may find that it is
// news. X is the ID's item; nil if the status does not show the ID.
func (t *retold) note(p *pod, x *item, claim latestClaim, began instant, grace time.Duration) {
	it := &claim.item
	e := p.expected.get(it.ID, CauseClaim)
	switch {
	case x == nil && (e == nil || began <= e.at || it.Phase == PhaseRemoved):
		return
	case x == nil, e != nil && began > e.at.add(grace):
	case x.phase != PhaseExited || it.Phase != PhaseExited: // only what has ended may run again
		return
	}
	if it.Phase < (*t)[it.ID].claim.item.Phase {
		return
	}
	if *t == nil {
		*t = make(retold)
	}
	(*t)[it.ID] = retelling{claim, x != nil}
}

// of yields the claims of a pod, in the order of the IDs, once the look is applied. What is told of
// an ID that the look has shown to be gone is late.
func (t retold) of(r *records, p *pod) iter.Seq[latestClaim] {
	return func(yield func(latestClaim) bool) {
		for _, id := range slices.Sorted(maps.Keys(t)) {
			late := t[id].shown && r.find(p, 0, id) == nil
			if !late && !yield(t[id].claim) {
				return
			}
		}
	}
}
