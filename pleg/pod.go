// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// phaseNone is the phase of an ID not yet shown.
const phaseNone = Phase(0xff)

// item is one sandbox or container in the status of a pod. Only records.show makes and moves
// items. What events and own calls report of an ID is written by announce and retract; no status
// and no freshness depends on it.
type item struct {
	// id and kind are the ID; name is for events and people, and empty until a read has the name.
	id, name string
	kind     Kind

	// pod is the pod that shows the ID. An ID that reads show in two pods has an item in each.
	pod *pod

	// shown is the phase in the pod's status: PhaseUnknown if the runtime did not know.
	shown Phase

	// phase is shown, or the phase before PhaseUnknown was shown: a later phase is news, an
	// earlier one a regression. PhaseRemoved once the item is dropped.
	phase Phase

	// sent are the events sent, a bit each: each event of a life is sent once.
	sent uint8

	// doubted reports whether the last look did not show the ID although it lives: nobody has
	// reported its end. A second look is believed.
	doubted bool

	// unshown reports whether Watch was told of the pod while the item could not be read, and was
	// missing in the status. The next status with the item is told of, too.
	unshown bool

	// back reports, of a dropped item, whether reads have shown the ID again, which has another
	// item now.
	back bool

	// mark is the last comparison of records that met the ID.
	mark uint64

	// claimed is the furthest phase that an event or an own call has reported. A read that
	// refutes the report takes it back.
	claimed Phase

	// cause is of the claimed phase: CauseRead until anything was reported.
	cause Cause

	// stamp is the runtime's time of that event, in Unix nanoseconds; zero if none.
	stamp int64
}

// pod is the record of a pod.
type pod struct {
	uid             cache.UID
	name, namespace string

	// items are the IDs of the last stored status, each once, in the order in which they were
	// first shown. Only records.show writes them.
	items []*item

	// ready is the number of sandboxes in PhaseRunning among the items.
	ready int32

	// entry is the kind of the pod's entry in the cache. Only the become methods write it.
	entry entryState

	// foreign reports whether the status in the cache is of an earlier generator: its IDs are not
	// known.
	foreign bool

	// missed reports whether a look has shown nothing of a foreign pod. A second look is believed.
	missed bool

	// asOf is the begin of the last look behind the cache entry, unless the global time is later.
	asOf instant

	// unread is the number of items whose status the last read could not get.
	unread int32

	// unshown reports whether Watch was told of the pod while no item could be read. The next
	// status is told of, too.
	unshown bool

	// expected are the phases reported of the pod and confirmed by no read yet: see evidence.
	expected expectations

	// split reports whether the last read did not get the status of an ID that a list had shown: of
	// a runtime that lists for ever what it does not have, the second such read is believed,
	// whatever lists show meanwhile.
	split bool

	// diff is what the last list showed otherwise than the cache does; nil while they agree. Only
	// lists and core.store write it.
	diff *difference

	// visited is the begin of the last list that named the pod.
	visited instant

	// demand is why and when the pod is read.
	demand

	// read is the begin of the last read of all statuses behind the entry, or of the failed read.
	read instant

	// readEnd is when the last read of the pod ended.
	readEnd instant

	// place is where the pod stands among the reads.
	place

	// accused reports whether the failure of the last reads was reported.
	accused bool

	// onRota reports whether the pod is on the rota.
	onRota bool

	// own is what the agent does to the pod.
	own
}

// entryState is the state of a pod's entry in the cache.
type entryState uint8

const (
	noEntry      entryState = iota
	foreignEntry            // written by an earlier generator
	statusEntry
	failedEntry // the last read failed; a status may stand beside the error
	partEntry   // likewise, and the read has yielded phases all the same, or the status of some items
)

// differs reports whether the last list showed the pod otherwise than the cache does.
func (p *pod) differs() bool { return p.diff != nil }

// lane returns the lane of the pod's next read.
func (p *pod) lane() int {
	if p.failed() {
		return laneAgain
	}
	return laneFirst
}

// announced implements subject: no event announces a change of content.
func (p *pod) announced() Phase { return PhaseUnknown }

// busy implements subject.
func (p *pod) busy() bool { return false }

// mistaken implements subject.
func (p *pod) mistaken() bool { return false }

// unmet reports whether an expectation calls for a read.
func (p *pod) unmet() bool { return p.expected.unmet() }

// partial reports whether the last read has yielded something, and not everything.
func (p *pod) partial() bool { return p.entry == partEntry }

// failed reports whether the last read failed, or could not get some items.
func (p *pod) failed() bool { return p.entry == failedEntry || p.entry == partEntry }

// empty reports whether nothing is left to remember of the pod, the reads apart that it may need.
func (p *pod) empty() bool {
	return len(p.items) == 0 && p.expected.len() == 0 && p.entry == noEntry &&
		!p.reading && !p.queued && p.calls == 0 && !p.differs()
}

// becomeForeign: the cache holds an entry that an earlier generator wrote, as of the given time.
func (r *records) becomeForeign(p *pod, at instant) {
	r.countUnread(p, 0, false)
	p.entry = foreignEntry
	p.foreign = true
	p.missed = false
	p.asOf = max(p.asOf, at)
}

// becomeRead: the cache holds a status as of the given time, whose items have just been shown.
func (r *records) becomeRead(p *pod, at instant) {
	r.countUnread(p, 0, false)
	p.entry = statusEntry
	p.foreign = false
	p.asOf = at
}

// becomeFailed: the cache holds the error of a read begun at the given time, perhaps beside a
// status in which the given number of items is missing.
//
// Part reports whether the read has yielded anything.
func (r *records) becomeFailed(p *pod, at instant, unread int, part bool) {
	r.countUnread(p, unread, true)
	p.entry = failedEntry
	if part {
		p.entry = partEntry
	}
	p.asOf = at
}

// becomeGone: a look begun at the given time has shown nothing of the pod, and the cache holds no
// entry.
func (r *records) becomeGone(p *pod, at instant) {
	r.countUnread(p, 0, false)
	p.entry = noEntry
	p.foreign = false
	p.asOf = at
	p.nothingLate()
}

// countUnread counts the pod and its items that the last read could not get, in place of those of
// the read before.
func (r *records) countUnread(p *pod, items int, failed bool) {
	if p.failed() {
		r.unreadPods--
	}
	if failed {
		r.unreadPods++
	}
	p.accused = p.accused && failed
	r.unreadItems += items - int(p.unread)
	p.unread = int32(items)
}

// confirm notes that a look begun at the given time has shown the same as the entry.
func (p *pod) confirm(at instant) { p.asOf = at }

// reveal reports whether the entry shows again what it did not show when Watch was last told of
// the pod. Written reports whether a reading has brought a status, in which the unread items are
// missing.
func (p *pod) reveal(written bool, unread *idSet) (news bool) {
	if !written {
		return false
	}
	news = p.unshown
	p.unshown = false
	for _, x := range p.items {
		if x.unshown && !unread.has(x.id) {
			x.unshown = false
			news = true
		}
	}
	return news
}

// conceal notes what the entry does not show while Watch is told of the pod.
func (p *pod) conceal(written bool, unread *idSet) {
	if !written {
		p.unshown = true
		return
	}
	for _, x := range p.items {
		x.unshown = x.unshown || unread.has(x.id)
	}
}

// announce notes that an event or an own call has reported a phase of the ID.
func (x *item) announce(e *expectation) {
	if e.phase > x.claimed || e.phase == x.claimed && e.cause == CauseAck {
		x.claimed = e.phase
		x.cause = e.cause
		x.stamp = e.stamp
	}
}

// retract notes that a read has refuted what was reported beyond the present phase.
func (x *item) retract() { x.claimed = x.phase }

// disown notes that the agent's own call did not do what it reported: see pod.teardown.
func (x *item) disown() { x.cause = CauseRead }

// unknown reports whether the status shows an ID in PhaseUnknown.
func (p *pod) unknown() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool { return x.shown == PhaseUnknown })
}

// ended reports whether the status shows a container that has ended.
func (p *pod) ended() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool {
		return x.kind == Container && x.phase == PhaseExited
	})
}

// teardown reports whether the pod has a sandbox that is not ready and whose removal may never be
// announced. A sandbox stopped by the agent itself is removed by a call of the agent, too.
func (p *pod) teardown() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool {
		return x.kind == Sandbox && x.phase == PhaseExited && x.cause != CauseAck
	})
}

// shownItems returns the items of the status in the cache.
func (p *pod) shownItems() []Item {
	items := make([]Item, len(p.items))
	for i, x := range p.items {
		items[i] = Item{ID: x.id, Kind: x.kind, Phase: x.shown}
	}
	return items
}

// rename takes the pod's name from a report with the name.
func (p *pod) rename(name, namespace string) {
	if name != "" || namespace != "" {
		p.name = name
		p.namespace = namespace
	}
}

// title names the pod for people.
func (p *pod) title() string {
	if p.name == "" {
		return string(p.uid)
	}
	return p.namespace + "/" + p.name + " (" + string(p.uid) + ")"
}

// announced returns the furthest phase that an event or an own call has reported.
func (x *item) announced() Phase { return x.claimed }

// busy reports whether an own call about the pod is under way.
func (x *item) busy() bool { return x.pod.calls > 0 }

// mistaken reports whether the ID was called removed and is back.
func (x *item) mistaken() bool { return x.back }

// title names the ID for people.
func (x *item) title() string {
	name := x.id
	if x.name != "" {
		name = x.name + " (" + x.id + ")"
	}
	return x.kind.String() + " " + name + " of pod " + x.pod.title()
}

// inOrder returns pods sorted by UID, so that a history replays the same way.
func inOrder(pods map[*pod]struct{}) []*pod {
	if len(pods) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(pods), func(a, b *pod) int { return strings.Compare(string(a.uid), string(b.uid)) })
}

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

// records holds what is known of the pods, and finds IDs in them. It is the only writer of items.
type records struct {
	// pods are the pods of which anything is known.
	pods map[cache.UID]*pod

	// index finds an item by its ID. Of an ID that reads show in several pods it has one of the
	// items.
	index map[string]*item

	// gone are removed IDs, which may return: for a grace if the removal was announced, else for
	// returnsWithin. The event of a removal without a word may still come.
	gone map[string]removal

	// phases counts the items of all pods, by kind and phase.
	phases [2][PhaseRemoved]int

	// running is the number of pods with a ready sandbox.
	running int

	// unreadPods is the number of pods whose last read failed, whole or in part, unreadItems that
	// of the items that those reads could not get.
	unreadPods, unreadItems int

	// marks is the number of comparisons made: see item.mark.
	marks uint64

	// moves is the memory of show, used again.
	moves []move
}

// returnsWithin is how long an ID that vanished without a word is remembered. A runtime that has
// been restarted finds what it has within seconds.
const returnsWithin = time.Minute

// removal is an ID that was removed without a word.
type removal struct {
	of *item

	// until is how long the ID is remembered.
	until instant

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
	maps.DeleteFunc(r.gone, func(_ string, g removal) bool {
		return !g.open && now >= g.until
	})
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
func (r *records) known(p *pod) bool { return r.pods[p.uid] == p }

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

// matches reports whether a report and the record show the same.
func (r *records) matches(p *pod, items []Item) bool {
	r.marks++
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

// doubt marks the IDs that live, and the IDs that the agent has just made, that a report does not
// show although nobody has reported their end, and reports whether no earlier look has missed one
// of them: the report is not to be believed yet. Runtimes forget for a moment what they have,
// above all after a restart.
//
// Sights reports whether the report ends the doubt about what it shows.
func (r *records) doubt(p *pod, shows []Item, sights bool) (first bool) {
	if p.foreign && !slices.ContainsFunc(shows, Item.valid) {
		first = !p.missed // whatever the entry shows may be running
		p.missed = true
	}
	r.marks++
	for i, it := range shows {
		if x := r.find(p, i, it.ID); x != nil && it.valid() {
			x.mark = r.marks
		}
	}
	for _, x := range p.items {
		if !x.lives() {
			continue
		}
		if x.mark == r.marks {
			x.doubted = x.doubted && !sights
			continue
		}
		first = first || !x.doubted
		x.doubted = true
	}
	return r.doubtMade(p, shows) || first
}

// doubtMade is doubt for the IDs that the agent has just made and no read has shown.
func (r *records) doubtMade(p *pod, shows []Item) (first bool) {
	var shown idSet
	for i := range p.expected.all {
		e := &p.expected.all[i]
		made := e.cause == CauseAck && PhaseCreated <= e.phase && e.phase <= PhaseRunning
		if !made || r.find(p, 0, e.id) != nil {
			continue
		}
		if shown.items == nil {
			shown = setOfItems(shows)
		}
		if shown.has(e.id) {
			continue
		}
		first = first || !e.doubted
		e.doubted = true
	}
	return first
}

// sighted notes that a look has shown some IDs: if the next look does not show one of them, that is
// the first that does not.
func (r *records) sighted(p *pod, shows []Item) {
	if !p.doubted() {
		return
	}
	for i, it := range shows {
		if x := r.find(p, i, it.ID); x != nil {
			x.doubted = false
		}
	}
}

// dominates reports whether a payload shows exactly the IDs of the pod, none in an earlier phase,
// and everything expected of the pod.
func (r *records) dominates(p *pod, payload []Item) bool {
	r.marks++
	met := 0
	for i, it := range payload {
		x := r.find(p, i, it.ID)
		if x == nil || x.mark == r.marks || x.shown == PhaseUnknown || it.Phase < x.phase || it.Phase > PhaseExited {
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

// named returns the items of a pod, and the IDs that events and calls have named and that may still
// be there, without some.
func (r *records) named(p *pod, without map[string]bool) []Item {
	items := p.shownItems()
	for i := range p.expected.all {
		e := &p.expected.all[i]
		if e.phase == PhaseRemoved || without[e.id] || r.find(p, 0, e.id) != nil {
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

// undoubt forgets the looks that did not show an ID.
func (p *pod) undoubt() {
	p.missed = false
	for _, x := range p.items {
		x.doubted = false
	}
	for i := range p.expected.all {
		p.expected.all[i].doubted = false
	}
}

// doubted reports whether the last look did not show an ID that lives.
func (p *pod) doubted() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool { return x.doubted })
}

// alive reports whether the pod has a running ID of which nobody has reported the end.
func (p *pod) alive() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool {
		return x.phase == PhaseRunning && x.lives()
	})
}

// lives reports whether no look and no report has shown that the ID has ended. What was created may
// run by now, and a call that failed reports nothing.
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

// move is what a report has changed of an item.
type move struct {
	of     *item
	before Phase // the phase before; phaseNone if the ID is new

	// turned reports whether the runtime has lost the state of the ID, or has found it again.
	turned bool

	// back reports whether the report shows an earlier phase, or an ID that was removed.
	back bool

	// died and event are the events that Watch has not had of this life: died goes first. Empty
	// if none is due.
	died  bool
	event EventType
}

// tells reports whether an event of its own tells of the move.
func (m *move) tells() bool { return m.died || m.event != "" }

// show makes a report the items of a pod, and returns what has changed, valid until the next
// call. Of an ID that the report shows twice the first counts.
func (r *records) show(p *pod, shows []Item) []move {
	r.marks++
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
		x.doubted = false
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
		} else {
			m.due()
		}
	}
	if moves || m.turned {
		r.moves = append(r.moves, m)
	}
}

// The events of one life, for item.sent.
const (
	sentStarted uint8 = 1 << iota
	sentDied
	sentRemoved
)

// due enters the events that Watch is due for an item that has come to a later phase, each once
// in a life.
func (m *move) due() {
	x := m.of
	once := func(unless, sends uint8) bool {
		if x.sent&unless != 0 {
			return false
		}
		x.sent |= sends
		return true
	}
	switch x.phase {
	case PhaseRunning:
		if once(sentStarted|sentDied|sentRemoved, sentStarted) {
			m.event = ContainerStarted
		}
	case PhaseExited:
		if once(sentDied|sentRemoved, sentDied) {
			m.event = ContainerDied
		}
	case PhaseRemoved:
		m.died = m.before != PhaseExited && once(sentDied|sentRemoved, sentDied)
		if once(sentRemoved, sentRemoved) {
			m.event = ContainerRemoved
		}
	}
}

// untold reports whether Watch is due a PodSync for the move, because no event of its own tells
// of it. The creation of a container is told by nothing, as in the kubelet.
func (m *move) untold() bool {
	if m.turned || m.back {
		return !m.tells()
	}
	switch m.of.phase {
	case PhaseRunning, PhaseExited, PhaseRemoved:
		return m.event == ""
	}
	return false
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
// pods.
func (r *records) check(check func(ok bool, format string, args ...any)) {
	var phases [2][PhaseRemoved]int
	ids := 0
	running := 0
	unreadPods := 0
	unreadItems := 0
	for _, p := range r.pods {
		for _, x := range p.items {
			phases[x.kind][x.phase]++
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
		check(x.id == id && r.pods[x.pod.uid] == x.pod, "ID %q is filed as %q, of pod %q", x.id, id, x.pod.uid)
	}
}
