// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// lists is the room of the lists of everything: the list under way, the differences of the last
// list from the records, and the global time. Only the room's methods write lists, apart from the
// time of the start and the report of a hang.
type lists struct {
	// inflight reports whether a list is under way, and hung whether it has been reported as hung.
	inflight bool
	hung     bool

	// began is the begin of the list under way, or of the last.
	began instant

	// revision is the revision of the last applied list.
	revision Revision

	// appliedBegan is the begin of the last applied list, and appliedAt when it was applied; before
	// the first, zero and the start. A doubted list is not applied, and counts for appliedAt all the
	// same: the runtime has answered.
	appliedBegan instant `prove:"marks,knows:ordered,judged:begins"`
	appliedAt    instant `prove:"-"`

	// global is the cache's global time, which moves in advance only.
	global instant `prove:"marks,nameless:begins"`

	// err is the error of the last list, nil after success.
	err error

	// doubted reports whether the last list has lost more pods than it kept, and is being made again.
	doubted bool

	// awake is the end of the last time that the generator stood still.
	awake instant `prove:"-"`

	// rounds are the last lists with changed pods still to be read, two at most.
	rounds []round

	// differ are the pods the last list showed otherwise than the cache does.
	differ map[*pod]struct{}
}

// round is a list with changed pods still to be read; without one the global time moves to began.
type round struct {
	began   instant `prove:"ordered,nameless:begins"`
	pending map[*pod]struct{}
}

// difference is what the last list showed of a pod, otherwise than the cache does.
type difference struct {
	// shows are the items in that list, at its begin. First is the begin of the first list in a row
	// with these items.
	shows idSet
	at    instant
	first instant `prove:"-"`

	// agreed is the begin of the last list without a difference.
	agreed instant `prove:"marks,judged:begins"`
}

func newLists() lists { return lists{differ: make(map[*pod]struct{})} }

// begin notes that a list begins, and returns the begin of the list before.
func (l *lists) begin(now instant) (before instant) {
	before = l.began
	l.inflight = true
	l.hung = false
	l.began = now
	return before
}

// end notes the end of the list under way, well or not, and reports whether the one before failed.
func (l *lists) end(err error) (failed bool) {
	failed = l.err != nil
	l.inflight = false
	l.err = err
	return failed
}

// apply notes that a list was applied.
func (l *lists) apply(r *listedAll, now instant) {
	l.appliedBegan = r.began
	l.revision = r.listing.Revision
	l.appliedAt = now
	l.doubted = false
}

// doubt notes that a list is made again because the list has lost more than it kept.
func (l *lists) doubt(now instant) {
	l.appliedAt = now
	l.doubted = true
}

// stood notes that the generator has stood still until now.
func (l *lists) stood(now instant) { l.awake = now }

// awaited returns since when the list under way has been awaited: its begin, or the end of a
// standstill since; never if none is under way.
func (l *lists) awaited() instant {
	return max(l.since(), l.awake)
}

// since returns the begin of the list under way; never if none is.
func (l *lists) since() instant {
	if !l.inflight {
		return never
	}
	return l.began
}

// asOf returns the cache's AsOf for the pod.
func (l *lists) asOf(p *pod) instant {
	return max(p.asOf, l.global)
}

// readAt returns the cache's ReadAt for the pod, or an earlier time.
func (l *lists) readAt(p *pod) instant {
	if p.entry == noEntry {
		return l.asOf(p)
	}
	return p.read
}

// lastRead returns the begin of the last read in agreement with the record.
func (l *lists) lastRead(p *pod) instant {
	read := p.asOf
	listed := l.appliedBegan
	if p.failed() {
		read = p.good
	}
	if p.differs() {
		listed = p.diff.agreed
	}
	return max(read, listed)
}

// compare records the items of a pod in a list, begun at the given time. Same reports whether the
// cache shows the same.
func (l *lists) compare(p *pod, items []Item, began instant, same bool) {
	if same {
		p.diff = nil
		delete(l.differ, p)
		return
	}
	agreed := l.appliedBegan
	first := began
	if p.differs() {
		agreed = p.diff.agreed
		if sameItems(p.diff.shows.items, items) {
			first = p.diff.first
		}
	}
	p.diff = &difference{
		shows:  setOfItems(items),
		at:     began,
		first:  first,
		agreed: agreed,
	}
	l.differ[p] = struct{}{}
}

// last returns the pod as shown by the last list, and the begin of the list; zero before the first.
func (l *lists) last(p *pod) (items []Item, at instant) {
	if p.differs() {
		return p.diff.shows.items, p.diff.at
	}
	return p.shownItems(), l.appliedBegan
}

// agrees returns the time of a look, begun at the given time, that shows the items of a pod: the
// begin of a later list that has shown the same, though not the entry of the cache.
func (l *lists) agrees(p *pod, items []Item, at instant) instant {
	if diff := p.diff; diff != nil && diff.at > at && sameItems(diff.shows.items, items) {
		return diff.at
	}
	return at
}

// standsIn returns the items of a pod if a list of everything stands in for a list of the pod, and
// the begin of the list: the list is newer than all demands, and than the last read. A list without
// an ID in doubt is a look, and the read of the pod is to be another. Full reports whether statuses
// are read even of a pod as listed; before floor the cache may refuse the result of a read.
func (l *lists) standsIn(p *pod, full bool, floor instant) (items []Item, at instant) {
	if p.expected.len() > 0 || p.doubted() {
		return nil, 0
	}
	wanted := max(p.want, p.content, p.force, p.due, p.changed, p.readEnd)
	switch {
	case p.differs():
		at = p.diff.at
		items = p.diff.shows.items
	case full && p.entry == statusEntry && p.visited == l.appliedBegan:
		at = p.visited
		items = p.shownItems()
	}
	if at <= wanted || at < max(l.asOf(p), floor) {
		return nil, 0
	}
	return items, at
}

// comesFirst returns when a read due at the given time is made at the earliest: a list under way
// that began later may answer, and is waited for.
func (l *lists) comesFirst(at instant, wait time.Duration) instant {
	if l.inflight && at <= l.began {
		return l.began.add(wait)
	}
	return at
}

// hangsAt returns when the list under way is to be reported as hung, after the given time; never
// if that was done, or if none is under way.
func (l *lists) hangsAt(after time.Duration) instant {
	if !l.inflight || l.hung {
		return never
	}
	return l.awaited().add(after).next()
}

// answers reports whether lists are made: none is under way, and the last has not failed.
func (l *lists) answers() bool { return !l.inflight && l.err == nil }

// wait adds a list whose changed pods are still to be read.
func (l *lists) wait(began instant, pending map[*pod]struct{}) {
	if len(l.rounds) == 2 {
		l.rounds = l.rounds[:1] // the first may end before the second, which the new one replaces
	}
	l.rounds = append(l.rounds, round{began, pending})
}

// done notes that the lists that a pod has been read since need not wait for the pod any more; no
// list needs to if the pod is forgotten.
func (l *lists) done(p *pod, forgotten bool) {
	for i := range l.rounds {
		if r := &l.rounds[i]; forgotten || p.asOf >= r.began {
			delete(r.pending, p)
		}
	}
}

// advance moves the global time to the begin of the latest list with nothing pending, and returns
// that; zero if no list is over.
func (l *lists) advance() instant {
	for i := len(l.rounds) - 1; i >= 0; i-- {
		if len(l.rounds[i].pending) == 0 {
			l.global = max(l.global, l.rounds[i].began)
			l.rounds = slices.Delete(l.rounds, 0, i+1)
			return l.global
		}
	}
	return 0
}

// listedAll is the result of a list of everything.
type listedAll struct {
	began   instant
	listing Listing
	err     error
}

// loses reports whether a list has lost more running pods than it has kept, and no list before has.
// A runtime that has just been restarted answers so, without an error.
func (l *lists) loses(listing *Listing, pods map[cache.UID]*pod) bool {
	if l.doubted ||
		listing.Delta && len(listing.Gone) == 0 ||
		!listing.Delta && 2*len(listing.Pods) > len(pods) {
		return false
	}
	gone := make(map[cache.UID]bool, len(listing.Gone))
	for _, uid := range listing.Gone {
		gone[uid] = true
	}
	shown := make(map[cache.UID]bool, len(listing.Pods))
	for i := range listing.Pods {
		shown[listing.Pods[i].UID] = slices.ContainsFunc(listing.Pods[i].Items, Item.valid)
	}
	lost := 0
	kept := 0
	for uid, p := range pods {
		switch {
		case !p.foreign && !p.alive():
		case gone[uid], !listing.Delta && !shown[uid]:
			lost++
		default:
			kept++
		}
	}
	return lost > kept
}

// list starts a list of everything.
func (c *core[S]) list(now instant) {
	before := c.lists.begin(now)
	c.trust.sched.begun()
	c.out.do(action[S]{
		kind:   actList,
		at:     now,
		before: before,
		since:  c.lists.revision,
	})
}

// reportHanging returns the report that a list under way hangs: its timeout may be minutes away,
// and nothing else reports the hang until then. Up reports whether a stream reports changes.
func reportHanging(hung time.Duration, up bool) Report {
	return Report{
		Reason:  ReasonRelistHangs,
		Action:  "Relist",
		Warning: true,
		Note: fmt.Sprintf("a list of the runtime has not been answered for %v; %s",
			hung.Round(time.Millisecond), withoutLists(up)),
	}
}

// onListed applies a list of everything. A list confirms the pods listed as in the cache, wants a
// read of all others, and stores nothing but the absence of a pod.
func (c *core[S]) onListed(r *listedAll, now instant) {
	failed := c.lists.end(r.err)
	c.trust.sched.relisted(now)
	if r.err != nil {
		c.out.add(countRelistErrors, 1)
		c.out.paced(Report{
			Reason:  ReasonRelistFailed,
			Action:  "Relist",
			Warning: true,
			Note:    fmt.Sprintf("listing the runtime failed: %v; %s", r.err, withoutLists(c.stream.up())),
		}, now)
		c.trust.sched.ask(now)
		c.reviewAll(c.reads.dirty, now) // pods have waited for the list
		return
	}
	if failed {
		c.stepStream(inBack, nil, now)
	}
	took := now.sub(r.began)
	c.out.add(countRelists, 1)
	c.out.do(action[S]{kind: actListLasted, took: took})
	timed := r.began >= c.lists.awake // else how long the runtime took is not known
	if timed {
		c.peeks.listed(took, c.peeks.patience(c.reads.first(), r.began), now)
	}
	if timed && took > c.cfg.RelistSlow {
		c.out.paced(Report{
			Reason:  ReasonRelistSlow,
			Action:  "Relist",
			Warning: true,
			Note:    fmt.Sprintf("listing the runtime took %v", took.Round(time.Millisecond)),
		}, now)
	}
	if c.lists.loses(&r.listing, c.pods) {
		// The list is made again. Nothing of the list is applied, and neither this list nor the
		// next earns trust.
		c.lists.doubt(now)
		c.trust.refute("a list of everything shows less than half of the running pods")
		c.trust.sched.askAtOnce(now)
		c.reviewAll(c.reads.dirty, now) // pods have waited for the list
		return
	}
	found := c.trust.open.len()
	pending := c.visitAll(r, now)
	quiet := len(pending) == 0 && c.trust.open.len() == found
	trusted := !c.lists.doubted && c.stream.up() &&
		c.lists.appliedBegan > c.stream.connected &&
		r.began > c.trust.refutedAt
	c.lists.apply(r, now)
	if trusted {
		c.trust.credit(quiet, now)
	}
	c.lists.wait(r.began, pending)
	c.reviewAll(pending, now)
	c.out.advance(c.lists.advance())
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
		quiet := c.visit(p, items, span{began, now})
		if p.asOf < began {
			pending[p] = struct{}{}
		} else if !quiet || c.peeks.of[p.uid] != nil {
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
	for _, f := range c.reads.inflight {
		f.lapped = true
	}
	if r.listing.Delta {
		for p := range c.reads.dirty {
			add(p)
		}
		for p := range c.lists.differ {
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
			items, _ = c.lists.last(p)
		}
		visit(p, items)
	}
	return pending
}

// visit compares a pod with a list that has just ended, and reports whether nothing is left to do
// for the pod.
func (c *core[S]) visit(p *pod, items []Item, list span) (quiet bool) {
	news := c.takeListed(p, items, list.ended)
	unknown := p.foreign && len(p.items) == 0 // what its entry shows agrees with no list
	same := !unknown && c.matches(p, items)
	c.lists.compare(p, items, list.began, same)
	if same {
		c.sighted(p, items, p.ghosts)
		c.evidence.disprove(&c.records, p, items, list.began)
	}
	overlaps := p.reading || p.readEnd > list.began // a read of the pod may have looked later than the list
	doubtful := (!same || p.expected.len() > 0 || p.foreign) &&
		c.doubt(p, items, p.ghosts, list)
	if same && !p.foreign && !p.ghosts.any() &&
		p.expected.len() == 0 {
		p.whole.seen = list.ended
	} else {
		c.see(p, items, p.ghosts, list.ended)
	}
	gone := (!overlaps || same) && !doubtful &&
		!slices.ContainsFunc(items, Item.valid)
	look := settlement{pod: p, began: list.began, reading: c.reads.since(p)}
	switch {
	case list.began < p.asOf, !same && list.began <= c.peeks.looked(p.uid):
		if !same {
			p.lookAfter(list.ended)
		}
	case gone && p.entry == noEntry && p.waited() && list.began < c.floor: // the read that the waiters want answers
	case gone && (p.entry != noEntry || p.waited() || p.force != 0 && list.began >= c.floor):
		c.store(p, reading[S]{began: list.began}, list.ended)
		c.resolve(look)
	case gone:
		p.confirm(list.began)
		c.resolve(look)
	case same && p.haunted(): // else the list would overtake the read that is to decide
		p.lookFrom(list.began)
	case same && len(p.items) > 0:
		if p.entry == statusEntry && p.force == 0 {
			reads := p.waited() || p.late != 0 ||
				p.due != 0 || p.changed != 0
			quiet = !news && !reads &&
				p.expected.len() == 0 && len(c.lists.rounds) == 0
			c.out.observe(p.uid, list.began)
			p.confirm(list.began)
			if c.evidence.disputed(&c.records, p, list.began) {
				p.readLater(list.ended)
			} else {
				c.resolve(look)
			}
			p.delay(&c.cfg, list)
		}
		if p.failed() {
			p.endBackOff() // a list gives the pod another try
		}
	case overlaps && !p.reading:
		p.lookFrom(list.ended) // a read begun now is later than the list
	default: // if the pod is being read: core.onInspected compares
		p.lookFrom(list.began)
		if !p.differs() || !p.brings(&c.records, &c.cfg) {
			p.holdAtMost(list.ended.add(c.cfg.ListFirst))
		}
	}
	return quiet
}

// check reports each violated invariant of the room.
func (l *lists) check(check checker, pods map[cache.UID]*pod, now instant) {
	check(l.global <= l.appliedBegan && l.appliedBegan <= l.began && l.began <= now,
		"global time %d, list applied %d, begun %d, now %d", l.global, l.appliedBegan, l.began, now)
	for _, r := range l.rounds {
		check(r.began >= l.global && len(r.pending) > 0,
			"the list of %d is over, and the global time is %d", r.began, l.global)
		for p := range r.pending {
			check(pods[p.uid] == p && p.asOf < r.began,
				"the list of %d waits for pod %q as of %d", r.began, p.uid, p.asOf)
		}
	}
	for p := range l.differ {
		check(pods[p.uid] == p, "pod %q differs and is forgotten", p.uid)
	}
	for _, p := range pods {
		_, differs := l.differ[p]
		agrees := differs == p.differs() &&
			(!differs || p.diff.agreed <= p.diff.at && p.diff.at <= now)
		if !agrees {
			check(false, "pod %q differs from the last list, or does not, against its record", p.uid)
		}
	}
}
