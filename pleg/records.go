// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// inOrder returns the pods of a map sorted by UID, so that a history replays the same way.
func inOrder[V any](pods map[*pod]V) []*pod {
	if len(pods) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(pods), byUID)
}

// byUID compares pods by UID.
func byUID(a, b *pod) int {
	return cmp.Compare(a.uid, b.uid)
}

// records holds the pods, and finds IDs in them. Records are the only writer of items.
type records struct {
	// pods are the pods of which anything is known.
	pods map[cache.UID]*pod

	// index finds an item by its ID. If reads show an ID in several pods, the index has any item of
	// the ID.
	index map[string]*item

	// gone are removed IDs, which may return: for a grace if the removal was announced, else for
	// returnsWithin; and for as long as a read under way or to come may show them, as lists do. The
	// event of a removal without a word may still come.
	gone map[string]removal

	// phases counts the items of all pods, by kind and phase.
	phases [2][PhaseRemoved]int

	// running is the number of pods with a ready sandbox.
	running int

	// unreadPods is the number of pods whose last read failed, whole or in part; unreadItems is the
	// number of items missing in those reads.
	unreadPods, unreadItems int

	// marks is the number of the last comparison: see item.mark.
	marks uint32 `prove:"-"`

	// moves is the memory of show, used again.
	moves []move `prove:"-"`
}

// returnsWithin is how long an ID that vanished without an event is remembered. A restarted runtime
// finds its containers again within seconds.
const returnsWithin = time.Minute

// returnsLater is for how much longer an ID is remembered while the reads of its pod fail.
const returnsLater = 10 * time.Minute

// removal is an ID that was removed without a word.
type removal struct {
	of *item

	// until is the least time for which the ID is remembered: calls of its pod under way, and lists
	// with the ID, have the ID remembered for longer (awaited).
	until instant `prove:"-"`

	// open reports whether trust has yet to judge the removal.
	open bool
}

// remember keeps a removed ID, which may return. Open reports whether trust is going to judge the
// removal.
func (r *records) remember(x *item, open bool, until instant) {
	r.gone[x.id] = removal{of: x, open: open, until: until}
}

// judged notes that trust has judged the removal of an ID.
func (r *records) judged(x *item) {
	g := r.gone[x.id]
	if g.of == x {
		g.open = false
		r.gone[x.id] = g
	}
}

// returned forgets that an ID was removed.
func (r *records) returned(id string) {
	r.gone[id].of.back = true
	delete(r.gone, id)
}

// prune forgets the vanished IDs that will not return.
func (r *records) prune(now instant) {
	maps.DeleteFunc(r.gone, func(id string, g removal) bool {
		return !g.open && now >= g.until &&
			!r.awaited(g.of.pod.uid, id, g.until, now)
	})
}

// awaited reports whether a read may show a removed ID, which is remembered until a time at least:
// a read of its pod is under way, or the last one has failed, or the last list shows the ID, or a
// call of the agent's own has named it, or may name it when it returns.
func (r *records) awaited(uid cache.UID, id string, until, now instant) bool {
	p := r.pods[uid]
	if p == nil {
		return false
	}
	listed := p.differs() && p.diff.shows.has(id)
	down := p.failed() && now < until.add(returnsLater)
	return listed || p.reading || down ||
		p.calling() || p.expected.get(id, CauseAck) != nil
}

func newRecords() records {
	return records{
		pods:  make(map[cache.UID]*pod),
		index: make(map[string]*item),
		gone:  make(map[string]removal),
	}
}

// ensure returns the record of a pod, made if there is none.
func (r *records) ensure(uid cache.UID) *pod {
	p := r.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		r.pods[uid] = p
	}
	return p
}

// known reports whether the pod has a record still.
func (r *records) known(p *pod) bool {
	return r.pods[p.uid] == p
}

// podOf returns the pod of a call, or nil if nothing names the pod. Dirty are the pods in need of a
// read: an ID just made by the agent is of a dirty pod.
func (r *records) podOf(call *ownCall, dirty map[*pod]struct{}) *pod {
	if call.Pod.UID != "" {
		p := r.ensure(call.Pod.UID)
		p.rename(call.Pod.Name, call.Pod.Namespace)
		return p
	}
	if x := r.index[call.ID]; x != nil {
		return x.pod
	}
	if was := r.gone[call.ID]; was.open && r.known(was.of.pod) { // looks may have missed it
		return was.of.pod
	}
	var first *pod // a claim may name another pod
	for p := range dirty {
		if (first == nil || p.uid < first.uid) &&
			p.expected.get(call.ID, CauseAck) != nil {
			first = p
		}
	}
	return first
}

// find returns the item of an ID in a pod, or nil. Hint is the probable place.
func (r *records) find(p *pod, hint int, id string) *item {
	if hint < len(p.items) && p.items[hint].id == id {
		return p.items[hint]
	}
	if len(p.items) > manyIDs {
		x := r.index[id]
		if x == nil || x.pod == p {
			return x
		}
		if r.items() == len(r.index) { // reads show no ID in two pods
			return nil
		}
	}
	return p.item(id)
}

// item is find, one by one.
func (p *pod) item(id string) *item {
	i := slices.IndexFunc(p.items, func(x *item) bool { return x.id == id })
	if i < 0 {
		return nil
	}
	return p.items[i]
}

// items returns the number of items of all pods.
func (r *records) items() (n int) {
	for _, phases := range r.phases {
		for _, k := range phases {
			n += k
		}
	}
	return n
}

// nextMark begins a comparison: no item bears its mark. Numbers begin anew when they are used up,
// after months.
func (r *records) nextMark() {
	r.marks++
	if r.marks != 0 {
		return
	}
	for _, p := range r.pods {
		for _, x := range p.items {
			x.mark = 0
		}
	}
	r.marks = 1
}

// show makes a report the items of a pod, and returns what has changed, valid until the next
// call. Of an ID the report shows twice the first counts.
func (r *records) show(p *pod, shows []Item) []move {
	r.nextMark()
	r.moves = r.moves[:0]
	for i, it := range shows {
		if !it.valid() {
			continue
		}
		x := r.find(p, i, it.ID)
		if x == nil {
			x = r.create(p, it)
		} else if x.mark == r.marks {
			continue
		}
		x.mark = r.marks
		x.trust()
		if it.Name != "" {
			x.name = it.Name
		}
		r.advance(x, it.Phase)
	}
	kept := p.items[:0]
	for _, x := range p.items {
		if x.mark == r.marks {
			kept = append(kept, x)
			continue
		}
		r.advance(x, PhaseRemoved)
		r.drop(x)
	}
	clear(p.items[len(kept):])
	p.items = kept
	return r.moves
}

// create adds an ID that a report shows for the first time.
func (r *records) create(p *pod, it Item) *item {
	x := &item{
		id:    it.ID,
		pod:   p,
		kind:  it.Kind,
		phase: phaseNone,
		shown: phaseNone,
	}
	for e := range p.expected.of(it.ID) {
		x.announce(e)
		if e.phase > it.Phase {
			e.stored = false // a peek that did not show the ID came too early, or too late
		}
	}
	if other := r.index[it.ID]; other != nil { // reads show the ID in two pods, each of which has an item
		x.claimed = other.claimed
		x.cause = other.cause
		x.stamp = other.stamp
	}
	if was, ok := r.gone[it.ID]; ok {
		x.sent = was.of.sent
	}
	p.items = append(p.items, x)
	r.index[it.ID] = x
	return x
}

// drop forgets an ID that a report no longer shows.
func (r *records) drop(x *item) {
	for e := range x.pod.expected.of(x.id) {
		e.stored = false // a read confirms
	}
	if r.index[x.id] != x {
		return
	}
	delete(r.index, x.id)
	if r.items() <= len(r.index) {
		return
	}
	var other *item // reads may show the ID in other pods, too
	for _, p := range r.pods {
		if other != nil && p.uid >= other.pod.uid {
			continue
		}
		if y := p.item(x.id); y != nil && y != x { // the index has none just now
			other = y
		}
	}
	if other != nil {
		r.index[x.id] = other
	}
}

// advance takes an item to its phase in a report, and enters what has changed into moves.
func (r *records) advance(x *item, phase Phase) {
	m := move{
		of:     x,
		before: x.phase,
		turned: phase != PhaseRemoved && (x.shown == PhaseUnknown) != (phase == PhaseUnknown),
	}
	if m.before == phaseNone {
		_, m.back = r.gone[x.id]
	}
	if phase != PhaseRemoved {
		x.shown = phase
	}
	moves := phase != x.phase && !(phase == PhaseUnknown && x.phase != phaseNone)
	if moves {
		r.tally(x, -1)
		x.phase = phase
		r.tally(x, +1)
		if m.before != phaseNone && phase < m.before {
			m.back = true
			x.revive()
		} else {
			m.due()
		}
	}
	if moves || m.turned {
		r.moves = append(r.moves, m)
	}
}

// tally counts the items by kind and phase, and the pods with a ready sandbox.
func (r *records) tally(x *item, by int) {
	if x.phase >= PhaseRemoved {
		return
	}
	r.phases[x.kind][x.phase] += by
	if x.kind != Sandbox || x.phase != PhaseRunning {
		return
	}
	was := x.pod.ready > 0
	x.pod.ready += int32(by)
	if was != (x.pod.ready > 0) {
		r.running += by
	}
}

// check reports each violated invariant of the room: its counts and its index agree with the
// pods, and the fields of each pod with each other.
func (r *records) check(check checker, now instant) {
	var phases [2][PhaseRemoved]int
	ids := 0
	running := 0
	unreadPods := 0
	unreadItems := 0
	for uid, p := range r.pods {
		switch { // a call with arguments is a third of a search
		case uid != p.uid || uid == "":
			check(false, "pod %q is filed under another UID, %q", p.uid, uid)
		case max(p.asOf, p.visited, p.force, p.forced, p.readEnd, p.read) > now:
			check(false, "pod %q has an instant in the future: %+v", uid, p)
		case p.entry == failedEntry && p.retry.step == 0:
			check(false, "pod %q has failed without a delay", uid)
		case p.entry == noEntry && len(p.items) > 0:
			check(false, "pod %q has no status, which shows IDs", uid)
		}
		for _, x := range p.items {
			phases[x.kind][x.phase]++
			found := x.pod == p && x.id != "" &&
				r.find(p, 0, x.id) == x &&
				r.index[x.id] != nil
			shown := x.phase <= PhaseExited && (x.shown == x.phase || x.shown == PhaseUnknown)
			if !found || !shown {
				check(false, "item %+v is wrong", x)
			}
		}
		ids += len(p.items)
		if p.ready > 0 {
			running++
		}
		if p.failed() {
			unreadPods++
		}
		unreadItems += int(p.unread)
	}
	check(ids >= len(r.index), "%d IDs in pods, %d in the index", ids, len(r.index))
	check(phases == r.phases && running == r.running,
		"items %v and %d running pods, counted %v and %d", phases, running, r.phases, r.running)
	check(unreadPods == r.unreadPods && unreadItems == r.unreadItems,
		"%d pods and %d items unread, counted %d and %d", unreadPods, unreadItems, r.unreadPods, r.unreadItems)
	for id, x := range r.index {
		if x.id != id || r.pods[x.pod.uid] != x.pod {
			check(false, "ID %q is filed as %q, of pod %q", x.id, id, x.pod.uid)
		}
	}
}
