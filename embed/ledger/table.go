// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// table is the ledger of a kind of elements E. Only its methods change a table.
type table[E any] struct {
	kind[E]
	tick func() Seq
	// late reports whether a read began before an own call ended the sandbox of an element, and so may
	// show the element's former state.
	late    func(Read, E) bool
	changes uint64
	items   map[string]*item[E]
	gone    map[string]tombstone
	doubts  map[string]doubt
	// unknown are the items last shown in an unknown state, with the time of the last such read, until
	// a later read shows a known state. Their phase stays the last known.
	unknown map[string]Seq
	// made are the sandboxes made by own calls, with the moment of the answer. A read begun earlier
	// may show such a sandbox as ended although not ready yet: runtimes list a sandbox while they make
	// it.
	made map[string]Seq
	// full and fullAt are the beginning of the last applied full list.
	full   Seq
	fullAt time.Time
	// flooded is the time of the last doubts dropped for want of room; only a full list begun later
	// makes up for the loss.
	flooded Seq
}

// item is a known element.
type item[E any] struct {
	element E
	phase   Phase
	// born is when the ledger learned of the item. Only a read begun later can prove its absence.
	born Seq
	// since is when the ledger learned of the phase, or the beginning of the last read that confirmed
	// the phase. A read begun earlier may show an older phase.
	since Seq
}

// tombstone is when an ID was found, or made, to be gone.
type tombstone struct {
	at   Seq
	when time.Time
}

// doubt is a claim beyond the known phase.
type doubt struct {
	claim Phase
	at    Seq
	pod   string // UID of the pod, if known
}

func newTable[E any](k kind[E], tick func() Seq, late func(Read, E) bool) *table[E] {
	return &table[E]{
		kind: k, tick: tick, late: late,
		items: make(map[string]*item[E]), gone: make(map[string]tombstone), doubts: make(map[string]doubt),
		unknown: make(map[string]Seq), made: make(map[string]Seq),
	}
}

// apply takes a list from the runtime.
func (t *table[E]) apply(r Read, f filter, shown []E, now time.Time) {
	seen := make(map[string]struct{}, len(shown))
	for _, e := range shown {
		id := t.id(e)
		seen[id] = struct{}{}
		t.show(r, id, e)
	}
	if f.hasState {
		return // what it leaves out may be there in another state
	}
	for id, x := range t.items {
		if _, ok := seen[id]; !ok && r.began > x.born && t.covers(f, x.element) {
			t.remove(id, now)
		}
	}
	for id, d := range t.doubts {
		if _, ok := seen[id]; !ok && r.began > d.at && t.items[id] == nil && f.covers(id) {
			t.remove(id, now) // an earlier read still under way may show the item
		}
	}
	if f.all() {
		if r.began > t.full {
			t.full, t.fullAt = r.began, r.at
		}
		prune(t.gone, now)
	}
}

// show takes an element shown by a read.
func (t *table[E]) show(r Read, id string, e E) {
	if g, ok := t.gone[id]; ok {
		if r.began <= g.at {
			return // from before it went
		}
		delete(t.gone, id)
	}
	phase := t.phase(e)
	if phase == Exited && r.began <= t.made[id] {
		return
	}
	x := t.items[id]
	if x == nil {
		now := t.tick()
		x = &item[E]{element: e, phase: phase, born: now, since: now}
		t.items[id] = x
		t.changes++
		if t.late(r, e) {
			t.ask(id)
			return
		}
	} else if r.began > x.since && phase == x.phase && !t.same(e, x.element) {
		x.element = e
		t.changes++
	}
	t.learn(r, id, x, phase)
}

// state takes the phase of an item shown by a status.
func (t *table[E]) state(r Read, id string, phase Phase) {
	x := t.items[id]
	if x == nil || phase == Exited && r.began <= t.made[id] {
		return // a status is not a list's element
	}
	t.learn(r, id, x, phase)
}

// learn takes the phase of an item shown by a read: forward always, back if the read is later.
func (t *table[E]) learn(r Read, id string, x *item[E], phase Phase) {
	later := r.began > x.since
	if phase == Unknown {
		if later || x.phase == Unknown {
			t.unknown[id] = t.tick()
			t.changes++
		}
		return
	}
	if at, ok := t.unknown[id]; ok && r.began > at {
		delete(t.unknown, id)
		t.changes++
	}
	switch {
	case phase > x.phase, phase < x.phase && later:
		t.move(x, phase)
	case phase == x.phase:
		x.since = max(x.since, r.began) // confirmed: an earlier read does not take the phase back
	}
	t.answer(id, r, phase)
}

// answer drops the doubt about an item shown by a read, unless the doubt came after the read began
// and goes beyond the shown phase. A read too old to be believed answers nothing.
func (t *table[E]) answer(id string, r Read, shown Phase) {
	d, ok := t.doubts[id]
	if x := t.items[id]; ok && (r.began > d.at && shown == x.phase || d.claim <= x.phase) {
		delete(t.doubts, id)
	}
}

// move gives an item another phase, as of now.
func (t *table[E]) move(x *item[E], phase Phase) {
	x.element, x.phase, x.since = t.with(x.element, phase), phase, t.tick()
	t.changes++
}

// forward moves an item forward because of an own call.
func (t *table[E]) forward(id string, x *item[E], phase Phase) {
	if phase > x.phase {
		t.move(x, phase)
		delete(t.unknown, id)
	} else if phase == x.phase {
		x.since = t.tick()
	}
	if d, ok := t.doubts[id]; ok && d.claim <= x.phase {
		delete(t.doubts, id)
	}
}

// remove takes an item away for good: its ID is not used again.
func (t *table[E]) remove(id string, now time.Time) {
	if _, ok := t.items[id]; ok {
		delete(t.items, id)
		t.changes++
	}
	delete(t.doubts, id)
	delete(t.unknown, id)
	delete(t.made, id)
	t.gone[id] = tombstone{t.tick(), now}
}

// question puts an ID in doubt.
func (t *table[E]) question(id string, claim Phase, pod string) {
	if len(t.doubts) >= maxDoubts {
		if _, ok := t.doubts[id]; !ok {
			clear(t.doubts)
			t.flooded = t.tick()
			return
		}
	}
	d := t.doubts[id]
	t.doubts[id] = doubt{claim: max(claim, d.claim), at: t.tick(), pod: pod}
}

// prune forgets removed IDs after a while, or when a flood of claims has made too many. A read
// begun before the removal may then show a forgotten ID once more, until the next read.
func prune(stones map[string]tombstone, now time.Time) {
	if len(stones) > maxGone {
		clear(stones)
	}
	for id, g := range stones {
		if now.Sub(g.when) > forget {
			delete(stones, id)
		}
	}
}

// refuses returns the reason why a list with this filter cannot be served, if any.
func (t *table[E]) refuses(f filter) Verdict {
	switch {
	case t.full <= t.flooded:
		return Verdict{Reason: InDoubt}
	case f.hasState && f.state == Unknown:
		return Verdict{Reason: UnknownState}
	case f.id != "" && t.items[f.id] == nil:
		return Verdict{Reason: UnknownID}
	}
	for id := range t.unknown {
		if t.covers(f, t.items[id].element) {
			return Verdict{Reason: UnknownState}
		}
	}
	var resolve []string
	for id, d := range t.doubts {
		if x := t.items[id]; x != nil && t.covers(f, x.element) || x == nil && f.mayCover(id, d.pod) {
			resolve = append(resolve, id)
		}
	}
	switch {
	case len(resolve) > maxResolve:
		return Verdict{Reason: InDoubt}
	case len(resolve) > 0:
		return Verdict{InDoubt, resolve}
	}
	return Verdict{}
}

// serve returns the list that the runtime would return.
func (t *table[E]) serve(f filter) ([]E, Verdict) {
	if v := t.refuses(f); v.Reason != "" {
		return nil, v
	}
	list := make([]E, 0, len(t.items))
	for _, x := range t.items {
		if t.covers(f, x.element) && (!f.hasState || f.state == x.phase) {
			list = append(list, x.element)
		}
	}
	return list, Verdict{}
}
