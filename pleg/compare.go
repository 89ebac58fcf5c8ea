// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"iter"
	"slices"
)

// valid reports whether an item of a read can stand in a record.
func (a Item) valid() bool { return a.ID != "" && a.Phase <= PhaseExited }

// sameItems reports whether two reports show the same IDs in the same phases.
func sameItems(a, b []Item) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.EqualFunc(a, b, func(x, y Item) bool { return x.ID == y.ID && x.Phase == y.Phase }) {
		return true // nearly always in the same order
	}
	phases := make(map[string]Phase, len(b))
	for _, it := range b {
		phases[it.ID] = it.Phase
	}
	for _, it := range a {
		if phase, ok := phases[it.ID]; !ok || phase != it.Phase {
			return false
		}
		delete(phases, it.ID)
	}
	return true
}

// matches reports whether a report and the record show the same.
func (r *records) matches(p *pod, items []Item) bool {
	r.nextMark()
	n := 0
	for i, it := range items {
		if !it.valid() {
			continue
		}
		x := r.find(p, i, it.ID)
		if x == nil {
			return false
		}
		if x.mark == r.marks {
			continue
		}
		if x.shown != it.Phase {
			return false
		}
		x.mark = r.marks
		n++
	}
	return n == len(p.items)
}

// doubt notes the living IDs, and the IDs just made by the agent, that are missing in a report
// without a reported end. It returns whether such an ID may be there all the same: the report is
// not to be believed yet.
//
// The report ends the doubt about the IDs shown, apart from ghosts.
func (r *records) doubt(p *pod, shows []Item, ghosts *ghosts, at span) (perhaps bool) {
	if p.foreign && !slices.ContainsFunc(shows, Item.valid) {
		perhaps = p.whole.missing(at, 0) // whatever the entry shows may be running
	}
	r.mark(p, shows)
	for _, x := range p.items {
		if !x.lives() {
			continue
		}
		if x.mark == r.marks {
			if !ghosts.has(x.id) {
				x.trust()
			}
			continue
		}
		seen := p.whole.seen
		if p.foreign {
			seen = 0 // a look that shows something of another writer's pod need not show this ID
		}
		if x.missing(at, seen) {
			perhaps = true
		}
	}
	return r.doubtMade(p, shows, at) || perhaps
}

// mark marks the items of the pod that a report shows, and no others.
func (r *records) mark(p *pod, shows []Item) {
	r.nextMark()
	for i, it := range shows {
		if x := r.find(p, i, it.ID); x != nil && it.valid() {
			x.mark = r.marks
		}
	}
}

// lacking returns the IDs of the pod that a look begun at a time does not show, also those that the
// agent has just made.
func (r *records) lacking(p *pod, shows []Item, began instant) (ids []string) {
	r.mark(p, shows)
	for _, x := range p.items {
		if x.mark != r.marks {
			ids = append(ids, x.id)
		}
	}
	for e := range r.made(p, shows, began) {
		ids = append(ids, e.id)
	}
	return ids
}

// doubtMade is doubt for the IDs the agent has just made and no read has shown.
func (r *records) doubtMade(p *pod, shows []Item, at span) (perhaps bool) {
	for e := range r.made(p, shows, at.began) {
		perhaps = e.missing(at, 0) || perhaps
	}
	return perhaps
}

// made yields the reports of the agent's calls about IDs just made: shown by no read so far, and
// not by a look that began at the given time. A call that reported later may have made its ID after
// the look began.
func (r *records) made(p *pod, shows []Item, began instant) iter.Seq[*expectation] {
	return func(yield func(*expectation) bool) {
		var shown idSet
		for i := range p.expected.all {
			e := &p.expected.all[i]
			made := e.cause == CauseAck && e.at <= began &&
				PhaseCreated <= e.phase && e.phase <= PhaseRunning
			if !made || r.find(p, 0, e.id) != nil {
				continue
			}
			if shown.items == nil {
				shown = setOfItems(shows)
			}
			if !shown.has(e.id) && !yield(e) {
				return
			}
		}
	}
}

// sighted notes that a look has shown some IDs: a next look without such an ID is the first without
// the ID. Ghosts are IDs whose doubt does not end.
func (r *records) sighted(p *pod, shows []Item, ghosts *ghosts) {
	if !p.doubted() {
		return
	}
	for i, it := range shows {
		if x := r.find(p, i, it.ID); x != nil && !ghosts.has(it.ID) {
			x.trust()
		}
	}
}

// dominates reports whether a payload shows exactly the IDs of the pod, none in an earlier phase,
// and everything expected of the pod.
func (r *records) dominates(p *pod, payload []Item) bool {
	r.nextMark()
	met := 0
	for i, it := range payload {
		x := r.find(p, i, it.ID)
		if x == nil || x.mark == r.marks ||
			x.shown == PhaseUnknown ||
			it.Phase < x.phase || it.Phase > PhaseExited {
			return false
		}
		if x.recovered && it.Phase > x.phase {
			return false
		}
		for e := range p.expected.of(it.ID) {
			if e.phase > it.Phase {
				return false
			}
			met++
		}
		x.mark = r.marks
	}
	return len(payload) == len(p.items) && met == p.expected.len()
}

// named returns the items of a pod, and the IDs that a list, events and calls have named and that
// may still be there, without some. An item stands at the later of the phases of record and list:
// if its status cannot be read, nothing else tells.
func (r *records) named(p *pod, listed []Item, without map[string]bool) []Item {
	items := p.shownItems()
	later := make(map[string]Phase)
	for _, it := range listed {
		x := r.find(p, 0, it.ID)
		switch {
		case !it.valid() || without[it.ID]:
		case x == nil:
			items = append(items, it)
		case it.Phase > x.phase:
			later[it.ID] = it.Phase
		}
	}
	for i := range p.items {
		if phase, ok := later[items[i].ID]; ok {
			items[i].Phase = phase
		}
	}
	named := setOfItems(items)
	for i := range p.expected.all {
		e := &p.expected.all[i]
		if e.phase == PhaseRemoved || without[e.id] ||
			named.has(e.id) || r.find(p, 0, e.id) != nil {
			continue
		}
		event := p.expected.get(e.id, CauseClaim)
		if e.cause == CauseAck && event != nil && event.phase < PhaseRemoved {
			continue // named by both
		}
		items = append(items, e.item())
	}
	return items
}

// contradicts returns when the first and the last of the claims contradicted by a read were made;
// zero if the read shows no less than the status. A payload has brought the difference. First
// leaves out the effects of the agent's own calls, and states that the runtime does not know: a
// read begun later is right.
func (r *records) contradicts(p *pod, shows []Item) (first, last instant) {
	for i, it := range shows {
		x := r.find(p, i, it.ID)
		if x == nil || it.Phase >= x.phase {
			continue
		}
		for e := range p.expected.of(it.ID) {
			if known := it.Phase != PhaseUnknown; known || e.stored {
				last = max(last, e.at)
				if known && e.cause == CauseClaim && (first == 0 || e.at < first) {
					first = e.at
				}
			}
		}
	}
	return first, last
}

// see notes the end of a look that has shown some IDs, for looks under way that may not. Ghosts are
// IDs that count for nothing.
func (r *records) see(p *pod, shows []Item, ghosts *ghosts, now instant) {
	some := false
	for i, it := range shows {
		if !it.valid() || ghosts.has(it.ID) {
			continue
		}
		some = true
		if x := r.find(p, i, it.ID); x != nil {
			x.sight(now)
		}
	}
	if p.expected.len() > 0 {
		shown := setOfItems(shows)
		for i := range p.expected.all {
			if e := &p.expected.all[i]; shown.has(e.id) && !ghosts.has(e.id) {
				e.sight(now)
			}
		}
	}
	if some && p.foreign {
		p.whole.sight(now)
	}
}

// doubted reports whether the last look did not show an ID that lives.
func (p *pod) doubted() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool { return x.doubted != 0 })
}

// alive reports whether the pod has a running ID of which nobody has reported the end.
func (p *pod) alive() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool {
		return x.phase == PhaseRunning && x.lives()
	})
}

// lives reports whether no look and no report has shown the end of the ID. A created container may
// run by now, and a failed call reports nothing.
func (x *item) lives() bool {
	if max(x.phase, x.claimed) <= PhaseRunning {
		return true
	}
	if x.phase > PhaseRunning {
		return false
	}
	own := x.pod.expected.get(x.id, CauseAck)
	event := x.pod.expected.get(x.id, CauseClaim)
	return own != nil && own.failed && (event == nil || event.phase <= PhaseRunning)
}
