// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// lists is the state of the lists of everything.
type lists struct {
	inflight bool
	began    instant  // begin of the list under way, or of the last
	revision Revision // of the last applied list
	applied  instant  // begin of the last applied list
	global   instant  // the cache's global time; it moves in core.advance only
	finished instant  // when the last successful list was applied, or the start
	err      error    // of the last list, nil after success
	doubted  bool     // the last list has lost more pods than it kept, and is being made again
}

// round is a list with changed pods still to be read; without one the global time moves to began.
type round struct {
	began   instant
	pending map[*pod]struct{}
}

// listedAll is the result of a list of everything.
type listedAll struct {
	began   instant
	listing Listing
	err     error
}

// list starts a list of everything.
func (c *core[S]) list(now instant) {
	before := c.lists.began
	c.lists.inflight = true
	c.lists.began = now
	c.trust.sched.begun()
	c.out.do(action[S]{
		kind:   actList,
		at:     now,
		before: before,
		since:  c.lists.revision,
	})
}

// onListed applies a list of everything. A list confirms the pods listed as in the cache, wants a
// read of all others, and stores nothing but the absence of a pod.
func (c *core[S]) onListed(r *listedAll, now instant) {
	failed := c.lists.err != nil
	c.lists.inflight = false
	c.lists.err = r.err
	took := now.sub(r.began)
	c.trust.sched.finished(now)
	if r.err != nil {
		c.out.count[countRelistErrors]++
		c.out.paced(Report{
			Reason:  ReasonRelistFailed,
			Action:  "Relist",
			Warning: true,
			Note:    fmt.Sprintf("listing the runtime failed: %v; %s", r.err, c.withoutLists()),
		}, now)
		c.trust.sched.ask(now)
		for _, p := range inOrder(c.dirty) {
			c.review(p, now) // pods have waited for the list
		}
		return
	}
	if failed {
		c.stepStream(inBack, nil, now)
	}
	c.out.count[countRelists]++
	c.out.do(action[S]{kind: actListLasted, took: took})
	c.peeks.listed(took, c.peeks.patience(c.lanes[laneFirst].longest))
	if took > c.cfg.RelistSlow {
		c.out.paced(Report{
			Reason: ReasonRelistSlow, Action: "Relist", Warning: true,
			Note: fmt.Sprintf("listing the runtime took %v", took.Round(time.Millisecond)),
		}, now)
	}
	if c.loses(r) {
		c.doubtList(now)
		return
	}
	doubted := c.lists.doubted
	c.lists.doubted = false
	found := c.trust.open.len()
	pending := c.visitAll(r, now)
	quiet := len(pending) == 0 && c.trust.open.len() == found
	trusted := !doubted && c.stream.up() && c.lists.applied > c.stream.connected && r.began > c.trust.refutedAt
	c.lists.applied = r.began
	c.lists.revision = r.listing.Revision
	c.lists.finished = now
	if trusted {
		c.trust.credit(quiet, now)
	}
	if len(c.rounds) == 2 {
		c.rounds = c.rounds[:1] // the first may end before the second, which the new one replaces
	}
	c.rounds = append(c.rounds, round{r.began, pending})
	for _, p := range inOrder(pending) {
		c.review(p, now)
	}
	c.advance()
}

// loses reports whether a list has lost more running pods than it has kept, and none before it. A
// runtime that has just been restarted answers so, without an error.
func (c *core[S]) loses(r *listedAll) bool {
	l := &r.listing
	if c.lists.doubted || l.Delta && len(l.Gone) == 0 || !l.Delta && 2*len(l.Pods) > len(c.pods) {
		return false
	}
	gone := make(map[cache.UID]bool, len(l.Gone))
	for _, uid := range l.Gone {
		gone[uid] = true
	}
	shown := make(map[cache.UID]bool, len(l.Pods))
	for i := range l.Pods {
		shown[l.Pods[i].UID] = slices.ContainsFunc(l.Pods[i].Items, Item.valid)
	}
	lost := 0
	kept := 0
	for uid, p := range c.pods {
		switch {
		case !p.foreign && !p.alive():
		case gone[uid], !l.Delta && !shown[uid]:
			lost++
		default:
			kept++
		}
	}
	return lost > kept
}

// doubtList has a list made again that has lost more than it kept. Nothing of it is applied, and
// neither it nor the next one earns trust.
func (c *core[S]) doubtList(now instant) {
	c.lists.doubted = true
	c.lists.finished = now
	c.trust.refute("a list of everything shows less than half of the running pods")
	c.trust.sched.askAtOnce(now)
	for _, p := range inOrder(c.dirty) {
		c.review(p, now) // pods have waited for the list
	}
}

// visitAll applies a list to every pod that may differ, and returns the pods still to be read.
func (c *core[S]) visitAll(r *listedAll, now instant) map[*pod]struct{} {
	began := r.began
	pending := make(map[*pod]struct{})
	rest := make(map[*pod]struct{}) // pods not named by the list
	visit := func(p *pod, items []Item) {
		if p.visited == began {
			return // shown twice: the first counts
		}
		p.visited = began
		quiet := c.visit(p, items, began, now)
		if p.asOf < began {
			pending[p] = struct{}{}
		} else if !quiet {
			c.review(p, now)
		}
	}
	c.out.expect(len(r.listing.Pods))
	for i := range r.listing.Pods {
		if shown := &r.listing.Pods[i]; shown.UID != "" {
			p := c.ensure(shown.UID)
			p.rename(shown.Name, shown.Namespace)
			visit(p, shown.Items)
		}
	}
	for _, uid := range r.listing.Gone {
		if p := c.pods[uid]; p != nil {
			visit(p, nil)
		}
	}
	add := func(p *pod) {
		if p.visited != began {
			rest[p] = struct{}{}
		}
	}
	for p, f := range c.inflight { // or a failure from before the list would count as newer
		f.lapped = true
		add(p)
	}
	if r.listing.Delta {
		for p := range c.dirty {
			add(p)
		}
		for p := range c.differ {
			add(p)
		}
	} else {
		for _, p := range c.pods {
			add(p)
		}
	}
	for _, p := range inOrder(rest) {
		var items []Item
		if r.listing.Delta { // silence means as before
			items = p.listed
			if !p.differs() {
				items = p.shownItems()
			}
		}
		visit(p, items)
	}
	return pending
}

// visit compares a pod with a list, and reports whether nothing is left to do for the pod.
func (c *core[S]) visit(p *pod, items []Item, began, now instant) (quiet bool) {
	news := false
	for i := 0; i < len(items) && len(c.evidence.early) > 0; i++ {
		news = c.takeEarly(p, items[i].ID, now) || news
	}
	same := c.compare(p, items, began)
	if same && !p.split {
		c.sighted(p, items)
	}
	if !same && slices.ContainsFunc(items, func(it Item) bool { return it.valid() && c.find(p, 0, it.ID) == nil }) {
		p.unlisted = max(p.unlisted, began) // a read by the known IDs would not show this one
	}
	overlaps := p.reading || p.readEnd > began // a read of the pod may have looked later than the list
	doubtful := (!same || p.expected.len() > 0 || p.foreign) && c.doubt(p, items, !p.split)
	if f := c.inflight[p]; f != nil {
		f.lap(doubtful)
	}
	if doubtful && p.readEnd > began && !p.split {
		p.undoubt() // a read that has ended since may have looked later, and has shown the ID
	}
	gone := (!overlaps || same) && !doubtful && !slices.ContainsFunc(items, Item.valid)
	switch {
	case began < p.asOf, !same && began <= c.peeks.looked(p.uid):
		if !same {
			p.due = max(p.due, now)
		}
	case gone && p.entry == noEntry && p.waited() && began < c.floor: // the read that the waiters want answers
	case gone && (p.entry != noEntry || p.waited()):
		c.store(p, reading[S]{began: began}, now)
		c.resolve(p, began, nil)
	case gone:
		p.confirm(began)
		c.resolve(p, began, nil)
	case same && len(p.items) > 0:
		if p.entry == statusEntry && p.force == 0 {
			quiet = !news && p.expected.len() == 0 && !p.waited() && p.late == 0 && p.due == 0 && len(c.rounds) == 0
			c.out.observe(p.uid, began)
			p.confirm(began)
			if c.evidence.disputed(&c.records, p, began) {
				p.readLater(now)
			} else {
				c.resolve(p, began, nil)
			}
			c.delay(p, began, now)
		}
		if p.entry == failedEntry {
			p.notBefore = 0 // a list gives the pod another try
		}
	case overlaps && !p.reading:
		p.due = max(p.due, now-1) // a read begun now is later than the list
	default: // if the pod is being read: core.onInspected compares
		p.due = max(p.due, began-1)
		p.hold = min(p.hold, c.old(now))
	}
	return quiet
}

// compare records the items of a pod in a list, begun at the given time, and reports whether the
// cache shows the same.
func (c *core[S]) compare(p *pod, items []Item, began instant) (same bool) {
	if c.matches(p, items) {
		if p.differs() {
			p.listed = nil
			p.listedAt = 0
			p.agreed = 0
			delete(c.differ, p)
		}
		return true
	}
	if !p.differs() {
		p.agreed = c.lists.applied
	}
	p.listed = items
	p.listedAt = began
	c.differ[p] = struct{}{}
	return false
}

// advance moves the global time to the begin of the latest list with nothing pending.
func (c *core[S]) advance() {
	for i := len(c.rounds) - 1; i >= 0; i-- {
		if len(c.rounds[i].pending) == 0 {
			c.lists.global = max(c.lists.global, c.rounds[i].began)
			c.out.do(action[S]{kind: actAdvance, at: c.lists.global})
			c.rounds = slices.Delete(c.rounds, 0, i+1)
			return
		}
	}
}
