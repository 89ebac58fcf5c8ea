// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// table is the ledger of a kind of elements E. Only its methods change a table.
type table[E any] struct {
	kind[E]
	tick func() Seq
	// late reports whether a read began before an own call ended the sandbox of an element, and so may
	// show the element's former state.
	late    func(Read, E) bool
	changes uint64
	items   map[string]*item[E]
	// byPod and bySandbox hold the IDs of the items by the UID of their pod and by the ID of their
	// sandbox (containers only): a list of one pod costs what the pod has, on a node of any size.
	byPod     groups
	bySandbox groups
	gone      map[string]tombstone
	doubts    map[string]doubt
	// unknown are the items last shown in an unknown state, with the time of the last such read, until
	// a later read shows a known state. Their phase stays the last known.
	unknown map[string]Seq
	// made are the sandboxes made by own calls, with the moment of the answer. A read begun earlier
	// may show such a sandbox as ended although not ready yet: runtimes list a sandbox while they make
	// it.
	made map[string]Seq
	// making are the own calls under way that make an item, by the UID of the pod.
	making map[string]making
	// failures are the making and starting calls that have failed, by the UID of the pod, until a list
	// shows what they have made. The empty UID is of any pod.
	failures map[string]failure
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
	// ready is when the ledger learned that a sandbox had become ready, or that an own call had ended
	// the sandbox; zero before. What was seen earlier as not ready may have been in the making.
	ready Seq
}

// tombstone is when an ID was found, or made, to be gone.
type tombstone struct {
	at   Seq
	when time.Time
	// known reports whether the ID was an item of this kind, and not of a claim alone.
	known bool
}

// doubt is a claim beyond the known phase.
type doubt struct {
	claim Phase
	// first is when the first claim since the last answer came, and at when the last did.
	first, at Seq
	pod       string // UID of the pod, if known
	// made reports whether an answered own call has made the item, and sandbox is the ID of the
	// sandbox of such a container.
	made    bool
	sandbox string
}

func newTable[E any](k kind[E], tick func() Seq, late func(Read, E) bool) *table[E] {
	return &table[E]{
		kind:      k,
		tick:      tick,
		late:      late,
		items:     make(map[string]*item[E]),
		byPod:     make(groups),
		bySandbox: make(groups),
		gone:      make(map[string]tombstone),
		doubts:    make(map[string]doubt),
		unknown:   make(map[string]Seq),
		made:      make(map[string]Seq),
		making:    make(map[string]making),
		failures:  make(map[string]failure),
	}
}

// groups are sets of IDs by a common key. An empty key has no group.
type groups map[string]map[string]struct{}

func (g groups) add(key, id string) {
	if key == "" {
		return
	}
	if g[key] == nil {
		g[key] = make(map[string]struct{})
	}
	g[key][id] = struct{}{}
}

func (g groups) remove(key, id string) {
	delete(g[key], id)
	if len(g[key]) == 0 {
		delete(g, key)
	}
}

// inOrder returns the IDs of a group, sorted: the same list is served in the same order.
func (g groups) inOrder(key string) []string {
	ids := make([]string, 0, len(g[key]))
	for id := range g[key] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// file enters an item, which has no group yet, into its groups.
func (t *table[E]) file(id string, e E) {
	t.byPod.add(t.labels(e)[PodUIDLabel], id)
	if sandbox := t.sandbox(e); sandbox != id {
		t.bySandbox.add(sandbox, id)
	}
}

// unfile takes an item out of its groups.
func (t *table[E]) unfile(id string, e E) {
	t.byPod.remove(t.labels(e)[PodUIDLabel], id)
	t.bySandbox.remove(t.sandbox(e), id)
}

// covered yields the items that a list with this filter shows, state aside. The loop may remove the
// item that it was given.
func (t *table[E]) covered(f filter) iter.Seq2[string, *item[E]] {
	return func(yield func(string, *item[E]) bool) {
		var among []string
		switch pod := f.pod(); {
		case f.id != "":
			among = []string{f.id}
		case f.sandbox != "":
			among = t.bySandbox.inOrder(f.sandbox)
		case pod != "":
			among = t.byPod.inOrder(pod)
		default:
			for id, x := range t.items {
				if t.covers(f, x.element) && !yield(id, x) {
					return
				}
			}
			return
		}
		for _, id := range among {
			if x := t.items[id]; x != nil && t.covers(f, x.element) && !yield(id, x) {
				return
			}
		}
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
	t.listed(r, f)
	if f.hasState {
		return // what it leaves out may be there in another state
	}
	for id, x := range t.covered(f) {
		if _, ok := seen[id]; !ok && r.began > x.born {
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
			t.full = r.began
			t.fullAt = r.at
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
		t.showUnready(r, id)
		return
	}
	x := t.items[id]
	if x == nil {
		now := t.tick()
		x = &item[E]{
			element: e,
			phase:   phase,
			born:    now,
			since:   now,
		}
		t.items[id] = x
		t.file(id, e)
		t.changes++
		if t.late(r, e) {
			t.ask(id)
			return
		}
	} else if r.began > x.since && phase == x.phase && !t.same(e, x.element) {
		t.unfile(id, x.element)
		x.element = e
		t.file(id, e)
		t.changes++
	}
	t.learn(r, id, x, phase)
}

// state takes the phase of an item shown by a status.
func (t *table[E]) state(r Read, id string, phase Phase) {
	x := t.items[id]
	switch {
	case x == nil: // a status is not a list's element
	case phase == Exited && r.began <= t.made[id]:
		t.showUnready(r, id)
	default:
		t.learn(r, id, x, phase)
	}
}

// showUnready takes a sandbox shown as not ready by a read that began before the answer to the call
// that has made the sandbox, which may not have been ready yet. A sandbox known as ready before the
// read began may have ended since, and another read tells.
func (t *table[E]) showUnready(r Read, id string) {
	x := t.items[id]
	if x != nil && x.phase < Exited && r.began > x.since {
		t.ask(id)
	}
}

// learn takes the phase of an item shown by a read: forward always, back if the read is later.
func (t *table[E]) learn(r Read, id string, x *item[E], phase Phase) {
	later := r.began > x.since
	if phase == Unknown {
		if later || x.phase == Unknown {
			t.unknown[id] = t.tick()
			t.changes++
		} else { // the read may have looked before or after the known phase was seen
			t.ask(id)
		}
		return
	}
	if at, ok := t.unknown[id]; ok && r.began > at {
		delete(t.unknown, id)
		t.changes++
	}
	switch {
	case !later && t.crosses(r, x, phase):
		t.ask(id)
		return
	case phase > x.phase, phase < x.phase && later:
		t.move(x, phase)
	case phase == x.phase:
		x.since = max(x.since, r.began) // confirmed: an earlier read does not take the phase back
	}
	if x.phase < Exited && x.ready == 0 {
		x.ready = t.tick()
	}
	t.answer(id, r, phase)
}

// crosses reports whether a read of a sandbox and the ledger differ in ready and not ready, and
// nothing tells which came first: a sandbox is not ready before the time of being ready, and after.
func (t *table[E]) crosses(r Read, x *item[E], phase Phase) bool {
	return phase < x.phase && t.neverReady(x) || t.first == Running && phase > x.phase && r.began <= x.ready
}

// neverReady reports whether a sandbox is known as not ready, and may not have been ready yet:
// lists show a sandbox while it is made.
func (t *table[E]) neverReady(x *item[E]) bool {
	return t.first == Running && x.phase == Exited && x.ready == 0
}

// answer drops the doubt about an item shown by a read, unless the doubt came after the read began
// and goes beyond the shown phase. A read too old to be believed answers nothing.
func (t *table[E]) answer(id string, r Read, shown Phase) {
	d, ok := t.doubts[id]
	x := t.items[id]
	if ok && (r.began > d.at && shown == x.phase || d.claim <= x.phase && !t.neverReady(x)) {
		delete(t.doubts, id)
	}
}

// move gives an item another phase, as of now.
func (t *table[E]) move(x *item[E], phase Phase) {
	x.element = t.with(x.element, phase)
	x.phase = phase
	x.since = t.tick()
	t.changes++
}

// forward moves an item forward because of an own call.
func (t *table[E]) forward(id string, x *item[E], phase Phase) {
	if x.ready == 0 {
		x.ready = t.tick()
	}
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
	x, known := t.items[id]
	if known {
		delete(t.items, id)
		t.unfile(id, x.element)
		t.changes++
	}
	delete(t.doubts, id)
	delete(t.unknown, id)
	delete(t.made, id)
	t.gone[id] = tombstone{at: t.tick(), when: now, known: known || t.gone[id].known}
}

// question puts an ID in doubt as of now.
func (t *table[E]) question(id string, d doubt) {
	if len(t.doubts) >= maxDoubts {
		if _, ok := t.doubts[id]; !ok {
			clear(t.doubts)
			t.flooded = t.tick()
			return
		}
	}
	was := t.doubts[id]
	now := t.tick()
	t.doubts[id] = doubt{
		claim:   max(d.claim, was.claim),
		first:   cmp.Or(was.first, now),
		at:      now,
		pod:     cmp.Or(d.pod, was.pod),
		made:    d.made || was.made,
		sandbox: cmp.Or(d.sandbox, was.sandbox),
	}
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
	if t.unfinished(f) {
		return Verdict{Reason: Creating}
	}
	pods, resolves := t.unlisted(f)
	if !resolves {
		return Verdict{Reason: FailedCall}
	}
	v := Verdict{}
	for _, pod := range pods {
		v.Reason = FailedCall
		v.Resolve = append(v.Resolve, Query{Pod: pod})
	}
	for id, d := range t.doubts {
		x := t.items[id]
		if x != nil && t.covers(f, x.element) || x == nil && f.mayCover(id, d.pod) && !t.beingMade(d) {
			v.Reason = cmp.Or(v.Reason, InDoubt)
			v.Resolve = append(v.Resolve, Query{ID: id})
		}
	}
	if len(v.Resolve) > maxResolve {
		v.Resolve = nil
	}
	slices.SortFunc(v.Resolve, Query.compare) // the same list is answered by the same reads
	return v
}

// beingMade reports whether a claim of an unknown ID may be about the item that an own call under
// way is making: a list need not show the item before the call is answered. Of an item that others
// make in the same pod meanwhile the claim counts once the call is answered.
func (t *table[E]) beingMade(d doubt) bool {
	m := t.making[d.pod]
	return m.calls > 0 && !d.made && d.first > m.began && d.claim <= t.first
}

// unfinished reports whether a list with this filter would show a sandbox as not ready that an own
// call under way may be making: runtimes list a sandbox while they make it.
func (t *table[E]) unfinished(f filter) bool {
	for pod, m := range t.making {
		for id := range t.byPod[pod] {
			x := t.items[id]
			if x.phase == Exited && x.born > m.began && t.covers(f, x.element) && t.sandbox(x.element) == id {
				return true
			}
		}
	}
	return false
}

// serve returns the list that the runtime would return.
func (t *table[E]) serve(f filter) ([]E, Verdict) {
	if v := t.refuses(f); v.Reason != "" {
		return nil, v
	}
	room := 0
	if f.all() {
		room = len(t.items)
	}
	list := make([]E, 0, room)
	for _, x := range t.covered(f) {
		if !f.hasState || f.state == x.phase {
			list = append(list, x.element)
		}
	}
	return list, Verdict{}
}
