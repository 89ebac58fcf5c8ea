// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"maps"
	"slices"
)

// reading is one read of a pod while its items are merged into the pod's record.
type reading struct {
	pod        *pod
	began, now instant
	fromList   bool // from a list of everything, not from a read of the pod

	last instant // begin of the latest read applied before this one
	// superseded: this read began before last. An ID that only this read shows may already have gone;
	// an ID that it does not show may have come since.
	superseded  bool
	expected    bool // the stream should have announced the changes that this read finds
	agrees      bool // no ID is known to be further than the read shows
	needsReread bool // the read, superseded or not, leaves a question for another read
}

// readKind is the coverage of a read of a pod.
type readKind uint8

const (
	byPod  readKind = iota // a list of the pod, with or without its statuses
	byList                 // a list of everything
	byIDs                  // the statuses of the IDs known when the read began, without a list
)

// merge applies a read of a pod, begun at the given time: items is everything that the runtime has
// of the pod. It reports whether the read agrees with the record, that is, whether no ID is known
// to be further than the read shows.
//
// Phases always merge forward. Backward, a read overrules evidence from before its begin: at once
// if the evidence is a read too, after the grace if it is a claim, because a runtime may announce a
// change before its lists show it. An ID known from before the begin that the read does not show is
// Removed.
func (c *core[S]) merge(p *pod, items []Item, began, now instant, by readKind) (agrees bool) {
	last := c.readAt(p)
	r := reading{pod: p, began: began, now: now, fromList: by == byList, last: last, superseded: began < last, agrees: true}
	r.expected = c.hadEvents(last) && !r.superseded
	c.marks++
	if by == byList {
		clear(p.conflicts)
	}
	for i := range items {
		if it := &items[i]; it.ID != "" && it.Phase <= PhaseExited { // a read shows present IDs only
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

// dropUnconfirmed forgets claimed IDs that a read does not show.
func (c *core[S]) dropUnconfirmed(p *pod, began instant) {
	for id, s := range p.unconfirmed {
		// No runtime announces a creation, a start or an end before its reads show the ID: the claimed ID
		// has gone, or never was. (A read that begins in the instant of a claim begins after it: servedBy.)
		// expire forgets claimed removals.
		if s.phase != PhaseRemoved && began >= s.at {
			delete(p.unconfirmed, id)
			c.unconfirmed--
			c.dropsUnconfirmed = true
		}
	}
}

// mergeShown applies an ID and its phase, at position i of a read.
func (c *core[S]) mergeShown(r *reading, i int, it *Item) {
	p := r.pod
	x := c.itemOf(p, i, it.ID)
	var mask uint8 // of events emitted for the ID while it belonged to another pod
	moved := x != nil && x.pod != p && r.began > x.pod.read
	if moved {
		mask = x.mask
		c.reportConflict(p, x)
		c.reassign(x, r.now)
		x = nil
	}
	if x != nil && x.pod == p && x.statusUnknown && x.cached != phaseNone && it.Phase != PhaseUnknown {
		x.cached = PhaseUnknown // the read knows the state and the status does not: the statuses must be read again
	}
	switch {
	case x == nil:
		var ok bool
		if x, ok = c.discover(p, *it, r.expected && !moved, r.last, r.began, r.now); !ok || r.superseded { // no stream announces that an ID moves
			r.agrees, r.needsReread = false, true
		}
		x.mask = mask
	case x.pod != p:
		c.count.ownerConflicts++ // this read shows the ID in two pods, or a later read in the other pod: it stays there
		if r.fromList {
			p.addConflict(*it)
			p.want = max(p.want, r.now) // do not wait for the next list
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

// mergePhase applies the phase in which a read shows an item of its pod.
func (c *core[S]) mergePhase(r *reading, x *item, phase Phase) {
	switch {
	case phase == PhaseUnknown && x.phase != PhaseRemoved || phase == x.phase:
		if r.fromList && phase == PhaseUnknown && x.cached != phaseNone && !x.statusUnknown {
			x.cached = PhaseUnknown // the list does not confirm the status: the statuses must be read again
		}
		if x.statusUnknown && phase == PhaseUnknown && x.cached == phase && r.began >= r.pod.changedAt {
			x.cached = x.phase // this read knows no more than the status
		}
		if phase == x.phase && x.byClaim {
			x.byClaim, x.confirmed = false, r.now
		}
	case phase > x.phase && x.rolledBackSince(r.began):
		r.agrees = false
	case phase > x.phase:
		if r.expected && x.phase != PhaseUnknown && x.listed != PhaseUnknown {
			// Else the list before did not know the state, which need not have changed since.
			c.addCandidate(x, phase, r.last, r.now)
		}
		c.setPhase(x, phase, CauseRead, false, 0, r.now)
	default:
		if !c.overrule(x, phase, r.began, r.now) {
			r.agrees = false
		}
	}
}

// mergeAbsent applies the absence of an item of the pod from a read.
func (c *core[S]) mergeAbsent(r *reading, x *item) {
	if r.fromList {
		x.listed = phaseNone
	}
	if x.phase == PhaseRemoved {
		switch {
		case !x.byClaim:
		case r.began > x.first && !x.rolledBackSince(r.began):
			x.byClaim, x.confirmed = false, r.now // reads that began before may still have seen the ID
			c.expiring.push(expiry{at: r.now, pod: r.pod})
		default: // the read may precede the ID: the next list confirms the removal, if only by silence
			c.changedSinceList[r.pod.uid] = r.pod
		}
		return
	}
	if r.began <= x.first || x.rolledBackSince(r.began) {
		r.agrees = false // the ID may have come after the read looked, or gone before
		r.needsReread = r.needsReread || r.superseded
		return
	}
	switch {
	case !x.shownAgain && x.claimed == PhaseUnknown && x.cause == CauseRead:
		if c.noteRegression(x, PhaseUnknown); r.expected { // only one read has shown the ID, and no claim named it
			c.count.regressions++
		}
	case r.expected:
		c.addCandidate(x, PhaseRemoved, r.last, r.now)
	}
	c.setPhase(x, PhaseRemoved, CauseRead, false, 0, r.now)
}

// reportConflict reports, once for a pod, that the runtime shows an ID in this pod which it has
// shown in another.
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

// reassign takes an item from its pod, because a later read shows the ID in another pod: the
// runtime had lost track of the owner. The old pod's statuses are read again, and if Watch has
// heard of the ID, Watch is owed a PodSync: no event will tell that pod's consumers that the ID has
// gone.
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
// whether the read agrees with the claims of that ID, or overrules them. Expected says that the
// runtime had events to announce the ID with when the last read before this one began.
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
	case it.Phase == PhaseUnknown && s.phase != PhaseRemoved: // UNKNOWN neither confirms nor overrules a claim
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
		// Else another read, under way at the same time, has not shown the ID, and may have dropped the
		// claims of it.
		c.addCandidate(x, it.Phase, last, now)
	}
	phase := x.phase
	c.countIn(x)
	c.setPhase(x, phase, cause, byClaim, stamp, now)
	x.since, x.confirmed = since, since
	return x, agrees
}

// overrule takes an item back to the phase that a read shows, if the read is to be believed, and
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

// listingOf returns the IDs that the last applied list showed in the pod.
func listingOf(p *pod) []Item {
	var items []Item
	for _, x := range p.items {
		if x.listed != phaseNone {
			items = append(items, Item{ID: x.id, Kind: x.kind, Phase: x.listed})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.conflicts)) { // in order, so that a history replays the same way
		items = append(items, p.conflicts[id])
	}
	return items
}

// differs says that the record differs from the last applied list, or that the list has not
// confirmed it yet: the silence of a list of differences then carries news about the pod.
func differs(p *pod) bool {
	if len(p.conflicts) > 0 {
		return true
	}
	for _, x := range p.items {
		if x.phase == PhaseRemoved && x.byClaim {
			return true // no list has confirmed the removal yet; a later list that still does not show the ID will
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

// compareItems is sameItems, and returns the number of items visited: a test holds that number to a
// few for each item. Reports mostly have the same order; items after the first difference are
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
		delete(phases, it.ID) // or an ID shown twice would pass for an ID not shown
	}
	return true, looks
}

// sameFew is sameItems for a few items, where a map costs more than it saves.
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
