// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// table is the ledger of one kind of elements E. Only its methods change it.
type table[E any] struct {
	kind[E]
	tick func() Seq
	// late says that a read began before an own call ended the sandbox of an element, and may show
	// the element as it was before.
	late    func(Read, E) bool
	changes uint64
	items   map[string]*item[E]
	gone    map[string]tombstone
	doubts  map[string]doubt
	// unknown are the items whose state a read has shown as unknown, with when the last did, until a
	// later one knows it. What was known before stays in their phase.
	unknown map[string]Seq
	// made are the sandboxes that own calls have made, with the moment of the answer. What a read
	// that began earlier shows as ended was not ready yet: runtimes list a sandbox while they make
	// it.
	made map[string]Seq
	// full and fullAt are when the last full list that was applied began.
	full   Seq
	fullAt time.Time
	// flooded is when doubts were dropped for want of room; only a full list begun later makes up
	// for it.
	flooded Seq
}

// item is one element as it is known.
type item[E any] struct {
	element E
	phase   Phase
	// born is when the ledger learned that there is such an item. Only a read that began later can
	// miss it.
	born Seq
	// since is when the ledger learned of the phase, or when the last read that bore it out began.
	// What a read that began earlier shows may be older.
	since Seq
}

// tombstone is when an ID was found, or made, to be gone.
type tombstone struct {
	at   Seq
	when time.Time
}

// doubt is a claim that goes beyond what is known.
type doubt struct {
	claim Phase
	at    Seq
	pod   string // UID of the pod, if it was told
}

func newTable[E any](k kind[E], tick func() Seq, late func(Read, E) bool) *table[E] {
	return &table[E]{
		kind: k, tick: tick, late: late,
		items: make(map[string]*item[E]), gone: make(map[string]tombstone), doubts: make(map[string]doubt),
		unknown: make(map[string]Seq), made: make(map[string]Seq),
	}
}

// apply takes a list that the runtime gave.
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
			t.remove(id, now) // an earlier read that is still under way may show it
		}
	}
	if f.all() {
		if r.began > t.full {
			t.full, t.fullAt = r.began, r.at
		}
		prune(t.gone, now)
	}
}

// show takes one element that a read has shown.
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

// state takes the phase that a status has shown of an item.
func (t *table[E]) state(r Read, id string, phase Phase) {
	x := t.items[id]
	if x == nil || phase == Exited && r.began <= t.made[id] {
		return // a status is not a list's element
	}
	t.learn(r, id, x, phase)
}

// learn takes the phase that a read has shown of an item: forward always, back if the read is
// later.
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
		x.since = max(x.since, r.began) // borne out: an earlier read does not take it back
	}
	t.answer(id, r, phase)
}

// answer drops the doubt about an item that a read has shown in some phase, unless the doubt is a
// later one about more. A read that is too old to be believed answers nothing.
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

// prune forgets removed IDs after a while, or when a flood of claims has made too many. A read that
// began before then may show one of them once more, until the next.
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

// refuses says why a list with this filter cannot be told from memory, if it cannot.
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

// serve returns what the runtime would list.
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
