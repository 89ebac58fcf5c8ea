// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"maps"
	"slices"
)

// reading is one read while it is merged into what is known of its pod.
type reading struct {
	pod        *pod
	began, now instant
	fromList   bool // a list of everything; else a read of the pod

	last instant // when the latest read began that was applied before this one
	// overtaken: this read began before that one. What it alone shows may have been and gone; what it
	// does not show yet says nothing.
	superseded  bool
	expected    bool // the stream was to tell of what this read finds
	agrees      bool // nothing is known to be further than the read shows
	needsReread bool // the read, overtaken or not, leaves a question that only another one answers
}

// readKind says what a read of a pod covers.
type readKind uint8

const (
	byPod  readKind = iota // a list of the pod, with its statuses or without
	byList                 // a list of everything
	byIDs                  // the statuses of the IDs that were known when it began, and no list
)

// merge applies what a read, begun at the given time, shows of a pod: items is all that the runtime
// has of it. It reports whether the read agrees with what is known, that is, whether nothing is
// known to be further than the read shows.
//
// Phases are merged forward always. Backward, a read overrules what was known before it began: at
// once if that comes from a read too, after the grace if it comes from a claim, because a runtime
// may tell of a change before its lists show it. An ID that the read does not show, and that was
// known before it began, is Removed.
func (c *core[S]) merge(p *pod, items []Item, began, now instant, by readKind) (agrees bool) {
	last := c.readAt(p)
	r := reading{pod: p, began: began, now: now, fromList: by == byList, last: last, superseded: began < last, agrees: true}
	r.expected = c.hadEvents(last) && !r.superseded
	c.marks++
	if by == byList {
		clear(p.conflicts)
	}
	for i := range items {
		if it := &items[i]; it.ID != "" && it.Phase <= PhaseExited { // a read shows what is there
			c.mergeShown(&r, i, it)
		}
	}
	for _, x := range p.items {
		if x.mark != c.marks {
			c.mergeAbsent(&r, x)
		}
	}
	if by != byIDs {
		c.dropUnconfirmed(p, began)
		p.own.listed = max(p.own.listed, began)
	}
	p.read = max(p.read, began)
	if !r.superseded {
		p.disagrees = !r.agrees
	} else if r.needsReread {
		p.disagrees = true
	}
	return r.agrees
}

// dropUnconfirmed forgets what the stream has told of and a read does not show.
func (c *core[S]) dropUnconfirmed(p *pod, began instant) {
	for id, s := range p.unconfirmed {
		// No runtime tells of a creation, a start or an end before its reads show the ID: the claim is
		// of an ID that has gone, or never was. (A read that begins in the instant of a claim begins
		// after it: servedBy.) What is told to be removed is forgotten by expire.
		if s.phase != PhaseRemoved && began >= s.at {
			delete(p.unconfirmed, id)
			c.unconfirmed--
			c.dropsUnconfirmed = true
		}
	}
}

// mergeShown applies what a read shows at position i: an ID and its phase.
func (c *core[S]) mergeShown(r *reading, i int, it *Item) {
	p := r.pod
	x := c.itemOf(p, i, it.ID)
	var mask uint8 // of events that were told of it while it was another pod's
	moved := x != nil && x.pod != p && r.began > x.pod.read
	if moved {
		mask = x.mask
		c.reportConflict(p, x)
		c.reassign(x, r.now)
		x = nil
	}
	if x != nil && x.pod == p && x.statusUnknown && x.cached != phaseNone && it.Phase != PhaseUnknown {
		x.cached = PhaseUnknown // the read knows what the status does not: it must be read again
	}
	switch {
	case x == nil:
		var ok bool
		if x, ok = c.discover(p, *it, r.expected && !moved, r.last, r.began, r.now); !ok || r.superseded { // no stream tells that an ID moves
			r.agrees, r.needsReread = false, true
		}
		x.mask = mask
	case x.pod != p:
		c.count.ownerConflicts++ // the same read shows it of two pods, or a later one of another: it stays there
		if r.fromList {
			p.addConflict(*it)
			p.want = max(p.want, r.now) // rather than wait for the next list
		}
		return
	case x.mark == c.marks && it.Phase <= x.phase: // shown twice: the later phase stands
		return
	default:
		x.shownAgain = true
		c.mergePhase(r, x, it.Phase)
	}
	x.mark = c.marks
	if x.name == "" {
		x.name = it.Name
	}
	if r.fromList {
		x.listed = it.Phase
	}
}

// mergePhase applies the phase that a read shows of an item of its pod.
func (c *core[S]) mergePhase(r *reading, x *item, phase Phase) {
	switch {
	case phase == PhaseUnknown && x.phase != PhaseRemoved || phase == x.phase:
		if r.fromList && phase == PhaseUnknown && x.cached != phaseNone && !x.statusUnknown {
			x.cached = PhaseUnknown // the list does not confirm what the status shows: that must be read again
		}
		if x.statusUnknown && phase == PhaseUnknown && x.cached == phase && r.began >= r.pod.changedAt {
			x.cached = x.phase // no more does this read know than the status
		}
		if phase == x.phase && x.byClaim {
			x.byClaim, x.confirmed = false, r.now
		}
	case phase > x.phase && x.rolledBackSince(r.began):
		r.agrees = false
	case phase > x.phase:
		if r.expected && x.phase != PhaseUnknown && x.listed != PhaseUnknown {
			// Else the list before did not know its state: it need not have changed since then.
			c.addCandidate(x, phase, r.last, r.now)
		}
		c.setPhase(x, phase, CauseRead, false, 0, r.now)
	default:
		if !c.overrule(x, phase, r.began, r.now) {
			r.agrees = false
		}
	}
}

// mergeAbsent applies that a read does not show an item of its pod.
func (c *core[S]) mergeAbsent(r *reading, x *item) {
	if r.fromList {
		x.listed = phaseNone
	}
	if x.phase == PhaseRemoved {
		switch {
		case !x.byClaim:
		case r.began > x.first && !x.rolledBackSince(r.began):
			x.byClaim, x.confirmed = false, r.now // reads that began before may have looked before it went
			c.expiring.push(expiry{at: r.now, pod: r.pod})
		default: // it may have looked before it came: the next list bears it out, if only by its silence
			c.changedSinceList[r.pod.uid] = r.pod
		}
		return
	}
	if r.began <= x.first || x.rolledBackSince(r.began) {
		r.agrees = false // it may have come after the read looked, or have gone before
		r.needsReread = r.needsReread || r.superseded
		return
	}
	switch {
	case !x.shownAgain && x.claimed == PhaseUnknown && x.cause == CauseRead:
		if c.noteRegression(x, PhaseUnknown); r.expected { // one read alone has shown it, and nobody has told of it
			c.count.regressions++
		}
	case r.expected:
		c.addCandidate(x, PhaseRemoved, r.last, r.now)
	}
	c.setPhase(x, PhaseRemoved, CauseRead, false, 0, r.now)
}

// reportConflict reports, once of a pod, that the runtime shows an ID of it that it has shown of
// another one.
func (c *core[S]) reportConflict(p *pod, x *item) {
	if p.conflictReported {
		return
	}
	p.conflictReported = true
	c.todo.report(Report{
		Reason: ReasonIDConflict, Action: "Reassign", Warning: true,
		Note: fmt.Sprintf("the runtime shows %s %s of this pod, and showed it of pod %s before", x.kind, x.id, x.pod.uid),
		Pod:  &PodRef{UID: p.uid, Name: p.name, Namespace: p.namespace},
	})
}

// reassign takes an item from its pod, because a later read shows it of another one: the runtime
// had lost track of whose it is. What the pod's status shows is read again, and Watch, if it was
// told of the ID, is owed a PodSync: no event will tell that pod's consumers that it has gone.
func (c *core[S]) reassign(x *item, now instant) {
	c.count.ownerConflicts++
	c.uncount(x)
	old := x.pod
	old.remove(x)
	if x.listed != phaseNone {
		old.addConflict(Item{ID: x.id, Kind: x.kind, Phase: x.listed})
		c.changedSinceList[old.uid] = old
	}
	delete(c.index, x.id)
	if x.cached != phaseNone {
		old.force = max(old.force, now)
	}
	old.reassigned = old.reassigned || x.emitted < PhaseRemoved
	c.reviewLater(old)
}

// discover adds an item that a read, begun at the given time, shows for the first time. It reports
// whether the read agrees with what the stream told of it, or overrules that. Expected says that
// the runtime had events to tell of it by when the last read before this one began.
func (c *core[S]) discover(p *pod, it Item, expected bool, last, began, now instant) (*item, bool) {
	x := &item{
		id: it.ID, name: it.Name, kind: it.Kind,
		place:   place{pod: p},
		belief:  belief{phase: it.Phase, first: now, since: now},
		shown:   shown{cached: phaseNone, listed: phaseNone},
		watched: watched{emitted: phaseNone},
	}
	if l, ok := p.conflicts[it.ID]; ok {
		x.listed = l.Phase
		delete(p.conflicts, it.ID)
	}
	c.index[it.ID] = x
	p.add(x)
	agrees := true
	cause, byClaim, stamp, since := CauseRead, false, int64(0), now
	s, ok := c.takeUnconfirmed(p, it.ID)
	switch {
	case !ok:
	case it.Phase == PhaseUnknown && s.phase != PhaseRemoved: // which neither bears the claim out nor overrules it
		x.claimed, cause, stamp = s.phase, CauseClaim, s.stamp
		x.phase, byClaim, since = s.phase, true, s.at
		x.invalidateStatus()
	case s.phase <= it.Phase:
		x.claimed, cause, stamp = s.phase, CauseClaim, s.stamp
	case began <= s.at.add(c.cfg.Grace):
		x.claimed, cause, stamp = s.phase, CauseClaim, s.stamp
		x.phase, byClaim, since, agrees = s.phase, true, s.at, false
	default:
		x.claimed = it.Phase
		c.noteOverruled(p, it, s.phase)
	}
	if expected && began > c.unconfirmedDropped {
		// Else a read that was under way together with this one has not shown the ID, and what the
		// stream had told of it may have been given up with that.
		c.addCandidate(x, it.Phase, last, now)
	}
	phase := x.phase
	c.countIn(x)
	c.setPhase(x, phase, cause, byClaim, stamp, now)
	x.since, x.confirmed = since, since
	return x, agrees
}

// overrule takes an item back to the phase that a read shows, if the read is to be believed. It
// reports whether it is.
func (c *core[S]) overrule(x *item, phase Phase, began, now instant) bool {
	limit := x.confirmed
	if x.byClaim {
		limit = limit.add(c.cfg.Grace)
	}
	if began <= limit {
		return false
	}
	if x.byClaim {
		c.noteOverruled(x.pod, Item{ID: x.id, Kind: x.kind, Phase: phase}, x.phase)
	} else {
		c.count.regressions++
		c.noteRegression(x, phase)
	}
	x.claimed = min(x.claimed, phase)
	c.setPhase(x, phase, CauseRead, false, 0, now)
	x.rolledBack = true
	return true
}

// listingOf returns what the last applied list showed of the pod.
func listingOf(p *pod) []Item {
	var items []Item
	for _, x := range p.items {
		if x.listed != phaseNone {
			items = append(items, Item{ID: x.id, Kind: x.kind, Phase: x.listed})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.conflicts)) { // so that a history replays the same way
		items = append(items, p.conflicts[id])
	}
	return items
}

// differs says that the ledger does not hold what the last applied list showed, or not yet as
// confirmed, so that a list that tells only differences says something about the pod by its
// silence.
func differs(p *pod) bool {
	if len(p.conflicts) > 0 {
		return true
	}
	for _, x := range p.items {
		if x.phase == PhaseRemoved && x.byClaim {
			return true // that list did not bear it out: a later one that still does not show it will
		}
		if x.listed != x.phase && (x.phase != PhaseRemoved || x.listed != phaseNone) {
			return true
		}
	}
	return false
}

// sameItems says that two reports show the same IDs in the same phases, in any order.
func sameItems(a, b []Item) bool {
	same, _ := compareItems(a, b)
	return same
}

// compareItems does so, and returns how many items were looked at: a test holds that number to a
// few for each item. Reports mostly come in the same order; what follows the first difference is
// looked up by ID.
func compareItems(a, b []Item) (same bool, looks int) {
	if len(a) != len(b) {
		return false, 0
	}
	for len(a) > 0 && a[0].same(b[0]) {
		a, b = a[1:], b[1:]
		looks++
	}
	if len(a) <= fewItems {
		return sameFew(a, b), looks + len(a)*len(b)
	}
	phases := make(map[string]Phase, len(b))
	for _, it := range b {
		phases[it.ID] = it.Phase
	}
	for _, it := range a {
		looks += 2
		if phase, ok := phases[it.ID]; !ok || phase != it.Phase {
			return false, looks
		}
		delete(phases, it.ID) // or an ID shown twice would stand for one that is not shown
	}
	return true, looks
}

// sameFew does so for a few items, for which a map costs more than it saves.
func sameFew(a, b []Item) bool {
	var used [fewItems]bool
	for _, it := range a {
		i := slices.IndexFunc(b, func(x Item) bool { return x.ID == it.ID })
		if i < 0 || used[i] || b[i].Phase != it.Phase {
			return false
		}
		used[i] = true
	}
	return true
}
