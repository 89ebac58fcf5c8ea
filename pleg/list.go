// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"slices"
	"time"
)

// lists is the state of the reads of everything.
type lists struct {
	inflight bool
	began    instant  // begin of the list under way, or of the last
	revision Revision // of the last applied list
	applied  instant  // begin of the last applied list
	global   instant  // the cache's global time
	finished instant  // when the last successful list was applied, or the start
	serial   uint64   // number of the list being applied
	hanging  bool     // the hang of the list under way was reported
	err      error    // of the last list, nil after success
}

// round is a list whose changed pods are still being inspected. When none is left, the global time
// moves to the begin of the list.
type round struct {
	began   instant
	pending map[*pod]struct{}
}

// list starts a list of everything.
func (c *core[S]) list(now instant) {
	before := c.lists.began
	c.lists.inflight, c.lists.hanging, c.lists.began = true, false, now
	c.sched.began()
	c.todo.do(action[S]{kind: actList, at: now, before: before, since: c.lists.revision})
}

// listedAll is the result of a list of everything.
type listedAll struct {
	began   instant
	listing Listing
	err     error
}

// onListed applies a list of everything.
func (c *core[S]) onListed(r *listedAll, now instant) {
	failed := c.lists.err != nil
	c.lists.inflight, c.lists.err = false, r.err
	took := now.sub(r.began)
	if r.err != nil {
		c.listFailed(r, now)
		return
	}
	if failed {
		c.reportOver(ReasonRelistFailed, "; it succeeds again", now)
		c.step(inBack, now)
	}
	c.count.relists++
	c.todo.do(action[S]{kind: actListLasted, took: took})
	if took > c.cfg.RelistSlow {
		c.reportPaced(Report{
			Reason: ReasonRelistSlow, Action: "Relist", Warning: true,
			Note: fmt.Sprintf("listing the runtime took %v", took.Round(time.Millisecond)),
		}, now)
	}
	trusted := c.connected() && c.lists.applied > c.conn.connected
	visited := c.visitAll(r, now)
	c.lists.applied, c.lists.revision = r.began, r.listing.Revision
	for id, s := range c.unowned {
		if s.phase != PhaseRemoved && r.began > s.at {
			delete(c.unowned, id) // the list did not show the ID
			c.dropsUnconfirmed = true
		}
	}
	c.lists.finished = now
	c.sched.finished(now)
	if trusted && r.began > c.overruled.last {
		c.creditQuietList(now)
	}
	c.openRound(visited, r.began)
	for _, p := range visited {
		switch {
		case p.failed && p.asOf > r.began: // the list says nothing of a read that began, and failed, after it
		case p.failed || p.statusUnknown() || p.force != 0 && r.began > p.force || !p.settled() && !p.disagrees:
			p.notYet = 0 // inspected at once: the pod has changed, or a list gives it another try
		default:
			c.scheduleReread(p, r.began, now)
		}
		c.review(p, now)
	}
	c.advance()
}

// visitAll applies a list to every pod, shown or not, and returns the pods that it may have
// changed.
func (c *core[S]) visitAll(r *listedAll, now instant) []*pod {
	c.lists.serial++
	visited := make([]*pod, 0, len(r.listing.Pods)+len(r.listing.Gone)+len(c.dirty))
	c.todo.expect(len(r.listing.Pods))
	for i := range r.listing.Pods {
		shown := &r.listing.Pods[i]
		if shown.UID == "" {
			continue
		}
		p := c.ensure(shown.UID)
		if p.seenIn == c.lists.serial {
			c.count.ownerConflicts++ // shown twice: the first counts
			continue
		}
		c.name(p, shown)
		visited = append(visited, c.visit(p, shown.Items, r, now))
	}
	for _, uid := range r.listing.Gone {
		if p := c.pods[uid]; p != nil && p.seenIn != c.lists.serial {
			visited = append(visited, c.visit(p, nil, r, now))
		}
	}
	c.reviewAffected(now) // a pod that has lost an ID is dirty, and so is visited
	visited = c.visitSilent(visited, r, now)
	c.reviewAffected(now)
	return visited
}

// visit applies a list to one pod.
func (c *core[S]) visit(p *pod, items []Item, r *listedAll, now instant) *pod {
	p.seenIn = c.lists.serial
	agrees := c.merge(p, items, r.began, now, byList)
	if differs(p) {
		c.changedSinceList[p.uid] = p
	} else {
		delete(c.changedSinceList, p.uid)
	}
	p.listing, p.listingBegan = items, r.began
	if agrees {
		c.confirm(p, r.began, now)
	}
	return p
}

// visitSilent applies a list to the pods that it did not name. Without Delta they are gone. With
// Delta they are as in the last list, which matters only for pods that have changed, or are wanted,
// since then, and for pods being read: such a read may yet fail, and once the global time is the
// begin of this list, the error must not pass for one as of that time.
func (c *core[S]) visitSilent(visited []*pod, r *listedAll, now instant) []*pod {
	if r.listing.Delta && len(c.dirty)+len(c.changedSinceList)+len(c.inflight) == 0 {
		return visited // true of most lists
	}
	from := len(visited)
	add := func(p *pod) {
		if p.seenIn != c.lists.serial {
			p.seenIn = c.lists.serial
			visited = append(visited, p)
		}
	}
	if r.listing.Delta {
		for _, p := range c.dirty {
			add(p)
		}
		for _, p := range c.changedSinceList {
			add(p)
		}
		for p := range c.inflight {
			add(p)
		}
	} else {
		for _, p := range c.pods {
			add(p)
		}
	}
	slices.SortFunc(visited[from:], byUID) // so that a history replays the same way
	for _, p := range visited[from:] {
		var items []Item
		if r.listing.Delta {
			items = listingOf(p)
		}
		c.visit(p, items, r, now)
	}
	return visited
}

func (c *core[S]) listFailed(r *listedAll, now instant) {
	c.count.relistErrors++
	c.sched.finished(now)
	c.sched.ask(now, false)
	c.reportPaced(Report{Reason: ReasonRelistFailed, Action: "Relist", Warning: true, Note: "listing the runtime failed: " + r.err.Error()}, now)
	for _, p := range inOrder(c.dirty) {
		c.enqueue(p, now) // pods that waited for this list
	}
}

// openRound notes which of the visited pods must be inspected before the cache holds the state that
// the list showed. Two rounds are kept at most, the oldest and the newest, so that the global time
// moves however slow inspections are.
func (c *core[S]) openRound(visited []*pod, began instant) {
	n := round{began: began}
	for _, p := range visited {
		if p.asOf < began && (!p.settled() || p.disagrees || p.statusUnknown() || p.failed || p.force != 0) {
			if n.pending == nil { // most lists change nothing
				n.pending = make(map[*pod]struct{})
			}
			n.pending[p] = struct{}{}
		}
	}
	if len(c.rounds) == 2 {
		c.rounds = c.rounds[:1]
	}
	c.rounds = append(c.rounds, n)
}

// settleRounds takes the pod out of every round that its status has reached. It reports whether it
// has confirmed the pod's status.
func (c *core[S]) settleRounds(p *pod, now instant) (confirmed bool) {
	done := false
	for i := range c.rounds {
		r := &c.rounds[i]
		if _, ok := r.pending[p]; !ok {
			continue
		}
		if p.asOf < r.began && p.read >= r.began && !p.unsure() {
			c.confirm(p, p.read, now) // a claim has since undone the change that the list found
			confirmed = true
		}
		if p.asOf >= r.began {
			delete(r.pending, p)
			done = done || len(r.pending) == 0
		}
	}
	if done {
		c.advance()
	}
	return confirmed
}

// advance moves the global time to the begin of the latest round in which every changed pod was
// inspected or its error recorded.
func (c *core[S]) advance() {
	for i := len(c.rounds) - 1; i >= 0; i-- {
		if len(c.rounds[i].pending) > 0 {
			continue
		}
		c.lists.global = max(c.lists.global, c.rounds[i].began)
		c.guard.advance(c.lists.global)
		c.todo.do(action[S]{kind: actAdvance, at: c.lists.global})
		c.rounds = slices.Delete(c.rounds, 0, i+1)
		return
	}
}

// schedule decides when the next relist is due. Trust is earned: the period starts at the base;
// doubles, once in a period at most, after a relist without a change that the stream had not
// announced; and falls back to the base when an event was missed or the stream lost.
type schedule struct {
	base, max time.Duration
	period    time.Duration
	ended     instant // when the last relist ended
	raised    instant // when the period last changed
	asked     instant // when a relist was requested before its time; never if not
	askedNow  bool    // the requested relist need not wait for the base period
}

func newSchedule(base, max time.Duration) schedule {
	return schedule{base: base, max: max, period: base, asked: never}
}

// due returns when the next relist shall begin: at the start, a period after the last relist, or on
// request, but no sooner than a base period after the last relist unless the request cannot wait.
func (s *schedule) due() instant {
	if s.ended == 0 {
		return 0
	}
	due := s.ended.add(s.period)
	if s.asked == never {
		return due
	}
	if s.askedNow {
		return min(due, s.asked)
	}
	return min(due, max(s.asked, s.ended.add(s.base)))
}

// ask requests a relist that begins after now: at once, or as soon as the base period allows.
func (s *schedule) ask(now instant, atOnce bool) {
	s.asked, s.askedNow = min(s.asked, now), s.askedNow || atOnce
}

// began notes the begin of a relist.
func (s *schedule) began() { s.asked, s.askedNow = never, false }

// finished notes the end of a relist.
func (s *schedule) finished(now instant) { s.ended = now }

// trust doubles the period: a relist found no change that the stream had not announced.
func (s *schedule) trust(now instant) {
	if now.sub(s.raised) >= s.period {
		s.period, s.raised = doubled(s.period, s.max), now
	}
}

// distrust takes the period back to the base.
func (s *schedule) distrust(now instant) { s.period, s.raised = s.base, now }
