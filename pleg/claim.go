// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
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
		first:     now,
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
			noteForLooks(&c.reads, &c.peeks, x, e, c.cfg.Grace)
		}
		if x.pod != p {
			c.review(x.pod, now)
		}
		return fresh
	}
	if was := c.gone[e.id]; was.open { // a look under way, or begun within the grace, may show it again
		was.of.announce(&e)
		e.ofGone = true
		kept := c.keepEarly(e, now)
		if kept { // old all the same, unless such a look shows it
			c.out.add(countStale, 1)
		}
		return kept
	}
	if p != nil && (e.phase < PhaseRemoved || p.entry == foreignEntry) {
		return c.expect(p, nil, e, now)
	}
	return c.expectEarly(e, now)
}

// retold are the reports of IDs in the status that were no news when they came, and came while a
// look was under way that may have looked before: of each ID and cause the furthest. If the look
// refutes what was told before it began, or takes back what the cache shows, they are news.
type retold map[reportKey]expectation

// note keeps a report of an item if a look begun at the given time may find that it is news.
func (t *retold) note(x *item, e expectation, began instant, grace time.Duration) {
	known := x.pod.expected.get(e.id, e.cause)
	mayRefute := known != nil && began > known.decides(grace)
	mayTakeBack := x.phase == PhaseExited && e.phase == PhaseExited // only what has ended may run again
	if !mayRefute && !mayTakeBack ||
		e.failed || e.phase < (*t)[e.reportKey].phase {
		return
	}
	if *t == nil {
		*t = make(retold)
	}
	(*t)[e.reportKey] = e
}

// outruns returns when the last of the reports came that a look contradicts; zero if none is. What
// has ended, and is told to have ended during the look, may have run again when the look was at it,
// and have ended since.
func (t retold) outruns(shows []Item) (last instant) {
	for _, it := range shows {
		if e, ok := t[reportKey{it.ID, CauseClaim}]; ok && it.Phase < e.phase {
			last = max(last, e.at)
		}
	}
	return last
}

// noteForLooks notes a report that is no news for the looks under way at its pod.
func noteForLooks(reads *reads, peeks *peeks, x *item, e expectation, grace time.Duration) {
	if f := reads.inflight[x.pod]; f != nil {
		f.retold.note(x, e, f.began, grace)
	}
	if y := peeks.of[x.pod.uid]; y != nil && y.began != 0 {
		y.retold.note(x, e, y.began, grace)
	}
}

// retell takes the reports of a pod's items again, once the look during which they were told is
// applied, in the order of the IDs. What is told of an ID the look has shown to be gone is
// late.
func (k *book[S]) retell(p *pod, told retold, now instant) {
	for _, key := range slices.SortedFunc(maps.Keys(told), reportKey.compare) {
		if x := k.find(p, 0, key.id); x != nil {
			k.expect(p, x, told[key], now)
		}
	}
}
