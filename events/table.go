// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of this package. The prefix is not for callers.
const (
	annotationPrefix = "series.evented-pleg.io/"
	// AnnotationState is the state of the series as defined by the redesign proposal: Ongoing,
	// Finished or Unknown (the reporter stopped before the end). A singleton has none.
	AnnotationState = annotationPrefix + "state"
	// AnnotationAtLeast is "true" if the count of a series is a lower bound: a process was killed
	// while counting.
	AnnotationAtLeast = annotationPrefix + "at-least"
	// AnnotationRoster holds a reporter's series, on a single Event; what has changed since is in
	// annotations with a dot and a number behind. A restarted reporter finds its series by them.
	AnnotationRoster = annotationPrefix + "roster"
)

// series is an entry of the table: the identity, the state, and its places in the lists. Guarded by
// the broadcaster's lock, but for the content, which does not change.
type series struct {
	key     seriesKey
	hash    uint64 // of the key
	id      seriesID
	pair    uint64 // hashes of parts of the key
	notes   uint64
	name    string // of the object
	content content
	st      state

	// left: an earlier process's series, to be ended. Its key is unknown.
	left bool
	// known: the server has answered. Set by settle, once.
	known bool
	// inflight: a call is under way.
	inflight bool
	// listed: the roster's object holds the series. Set when a roster is written.
	listed bool
	// seen is the roster's shared when the object's content was last known.
	seen uint32
	// trouble is the record of the failures since the last success, nil for none.
	trouble *trouble

	ticket ticket // in the queue
	age    link   // in table.aged
	mine   link   // in roster.own
	soon   int    // in table.hurried, -1 for none
	// in is the part of the table that the series is in, nil for none, and part the share of its
	// namespace there. Set by hold.
	in                 *shares
	part               *share
	neighbours[series] // in the share of the namespace
}

// link is the place of a series in a list of the table, in the series itself: a list's own elements
// would be an allocation each, and a look at memory far away.
type link struct {
	owner *series // nil while not in the list
	neighbours[link]
}

func (x *link) held() bool { return x.owner != nil }

// links is a list of series by their links.
type links struct{ chain[link, *link] }

// insert puts the link of a series behind another one, nil for the first place.
func (l *links) insert(s *series, x, after *link) {
	x.owner = s
	l.put(x, after)
}

// behind returns the next link, or for nil the first.
func (l *links) behind(x *link) *link {
	if x == nil {
		return l.first
	}
	return x.next
}

// drop takes a link out of the list, if it is there.
func (l *links) drop(x *link) {
	if x.held() {
		l.remove(x)
		x.owner = nil
	}
}

// begins gives the series its state, and the name of its object.
func (s *series) begins(st state, name string) {
	s.st = st
	s.name = name
}

// renamed gives the series another object.
func (s *series) renamed(name string) { s.name = name }

// trouble is the record of a series' failures in a row.
type trouble struct {
	failures int
	since    time.Time // the first
	// blamed counts those between which the server answered something else.
	blamed int
	// answers is the queue's at the last failure.
	answers int64
	// forbidden is the time of the first 403, zero for none.
	forbidden time.Time
}

// fail books a failure.
func (s *series) fail(now time.Time, answers int64) *trouble {
	t := s.record(now, answers)
	t.failures++
	if answers > t.answers {
		t.blamed++
	}
	t.answers = answers
	return t
}

// forbid books a 403, and returns when the first came.
func (s *series) forbid(now time.Time, answers int64) (since time.Time) {
	t := s.record(now, answers)
	if t.forbidden.IsZero() {
		t.forbidden = now
	}
	return t.forbidden
}

// record returns the record of the failures in a row.
func (s *series) record(now time.Time, answers int64) *trouble {
	if s.trouble == nil {
		s.trouble = &trouble{since: now, answers: answers}
	}
	return s.trouble
}

// content is the stored content of a series besides its key, as of its first occurrence.
type content struct {
	namespace, note                  string
	annotations                      map[string]string
	regardingVersion, relatedVersion string
}

// newSeries returns a series without a name and state. The hash is that of the key: a key has two
// dozen strings, so a new series hashes each part once.
func newSeries(key *seriesKey, hash uint64, src source, c *content) *series {
	s := &series{
		key:     *key,
		hash:    hash,
		id:      key.id(src),
		pair:    key.pair(),
		content: *c,
		soon:    -1,
	}
	if key.note != "" {
		s.notes = key.notes()
	}
	s.ticket.owner = s
	return s
}

// place is where the next call of a series goes.
func (s *series) place() place {
	p := place{
		namespace: s.content.namespace,
		kind:      callPatch,
		object:    objectOf(&s.key.regarding),
	}
	if s.st.phase == phaseAbsent {
		p.kind = callCreate
	}
	return p
}

func (s *series) event(src source, c call) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:            s.name,
			Namespace:       s.content.namespace,
			ResourceVersion: c.version,
		},
		EventTime:           metav1.NewMicroTime(s.st.begun),
		ReportingController: src.controller,
		ReportingInstance:   src.instance,
		Action:              cut(s.key.action, maxWord),
		Reason:              cut(s.key.reason, maxWord),
		Regarding:           s.key.regarding,
		Note:                s.content.note,
		Type:                s.key.eventType,
	}
	e.Regarding.ResourceVersion = s.content.regardingVersion
	if s.key.related != (corev1.ObjectReference{}) {
		related := s.key.related // on the heap
		related.ResourceVersion = s.content.relatedVersion
		e.Related = &related
	}
	if c.kind != callPatch { // else the server has them
		e.Annotations = maps.Clone(s.content.annotations)
	}
	if c.state == "" {
		return e
	}
	metav1.SetMetaDataAnnotation(&e.ObjectMeta, AnnotationState, c.state)
	if c.loose {
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, AnnotationAtLeast, "true")
	}
	if !c.mark {
		e.Series = &eventsv1.EventSeries{
			Count:            int32(min(c.count, math.MaxInt32)),
			LastObservedTime: metav1.NewMicroTime(c.last),
		}
	}
	return e
}

// look returns a stored object's content about its series.
func look(e *eventsv1.Event) found {
	f := found{
		count:   1,
		begun:   e.EventTime.Time,
		last:    e.EventTime.Time,
		state:   e.Annotations[AnnotationState],
		loose:   e.Annotations[AnnotationAtLeast] != "",
		version: e.ResourceVersion,
	}
	if e.Series != nil {
		f.count = max(int64(e.Series.Count), 1)
		f.last = e.Series.LastObservedTime.Time
	}
	return f
}

// restarts reports whether a restart would continue the series.
func (s *series) restarts() bool { return s.age.held() && s.st.continuing() }

// path identifies the object of a series in a roster.
func (s *series) path() string { return s.content.namespace + "/" + s.name }

// byBegin orders series by the begin of what they count, and by ID.
func byBegin(a, b *series) int {
	return cmp.Or(a.st.begun.Compare(b.st.begun), bytes.Compare(a.id[:], b.id[:]))
}

// table holds every series, and those with something to do at a time. Guarded by the broadcaster's
// lock. No function of table blocks.
type table struct {
	byKey   map[uint64]*series // those that take occurrences, by the hash of their key
	all     int                // series in memory
	pending *shares            // of these, neither stored nor refused
	leaving *shares            // stored ones that take no occurrence, with a last write to make
	active  *shares            // known ones that take occurrences, the longest quiet first
	aged    links              // known ones that take occurrences, the longest quiet first
	late    *link              // the latest put into aged before others, nil for none
	hurried indexed[*series]   // those that are written by a timer, the earliest first
	gone    memory             // evicted series
}

// gone is an evicted series: what its continuation needs.
type gone struct {
	id   seriesID
	name string
	st   state
}

// memory holds evicted series, each in a slot: a map of them would allocate each, and be searched
// for one to leave.
type memory struct {
	slots []gone
	// at is the slot of each series, and free are those without one.
	at   map[seriesID]int
	free []int
	// hand is the slot that is used next if none is free.
	hand int
}

// put remembers a series, one of at most limit: another one is forgotten to make room.
func (m *memory) put(g gone, limit int) {
	m.forget(g.id)
	if len(m.free) == 0 && len(m.slots) < limit {
		m.free = append(m.free, len(m.slots))
		m.slots = append(m.slots, gone{})
	}
	if len(m.free) == 0 {
		m.forget(m.slots[m.hand].id)
		m.hand = (m.hand + 1) % limit
	}
	last := len(m.free) - 1
	slot := m.free[last]
	m.free = m.free[:last]
	m.slots[slot] = g
	m.at[g.id] = slot
}

// get returns a series not forgotten.
func (m *memory) get(id seriesID) (g gone, ok bool) {
	slot, ok := m.at[id]
	if !ok {
		return g, false
	}
	return m.slots[slot], true
}

func (m *memory) forget(id seriesID) {
	slot, ok := m.at[id]
	if ok {
		delete(m.at, id)
		m.slots[slot] = gone{}
		m.free = append(m.free, slot)
	}
}

func newTable() table {
	return table{
		byKey:   map[uint64]*series{},
		pending: newShares(),
		leaving: newShares(),
		active:  newShares(),
		hurried: indexed[*series]{
			less:  func(a, b *series) bool { return a.st.due.Before(b.st.due) },
			index: func(s *series) *int { return &s.soon },
		},
		gone: memory{at: map[seriesID]int{}},
	}
}

// find returns the series of a key, nil for none.
func (t *table) find(k *seriesKey, hash uint64) *series {
	s := t.byKey[hash]
	if s != nil && s.key == *k {
		return s
	}
	return nil
}

// share puts a series into the part of the table for its state.
func (t *table) share(s *series) {
	switch {
	case !s.known:
		s.hold(t.pending)
	case s.st.end == finished || s.st.end == evicted:
		s.hold(t.leaving)
	default:
		s.hold(t.active)
	}
}

// retire detaches a series from its key; calls may still be owed.
func (t *table) retire(s *series) {
	if t.byKey[s.hash] == s {
		delete(t.byKey, s.hash)
	}
	t.unage(s)
}

// touch puts a series into its place by age, nearly always the last. Those whose first write comes
// late, after an outage, come in their order: each is sought from the place of the one before.
func (t *table) touch(s *series) {
	if t.aged.last == &s.age {
		return // a hot loop: a series never gets older
	}
	t.unage(s)
	if s.in == t.active {
		s.part.renew(s)
	}
	younger := func(x *link) bool { return x.owner.st.quiet().After(s.st.quiet()) }
	after := t.aged.last
	late := after != nil && younger(after)
	if late && t.late != nil && t.late.held() {
		after = t.late
	}
	for after != nil && younger(after) {
		after = after.prev
	}
	for next := t.aged.behind(after); next != nil && !younger(next); next = next.next {
		after = next
	}
	t.aged.insert(s, &s.age, after)
	if late {
		t.late = &s.age
	}
}

// yields returns the series that gives way where all room is used: the longest quiet one, of the
// namespaces that have an equal share or more. Where many others come first, it is the longest
// quiet one of the namespace with the most.
func (t *table) yields() *series {
	equal := t.active.n / max(len(t.active.by), 1)
	x := t.aged.first
	for range min(sought, t.aged.n) {
		s := x.owner
		if s.in != t.active || s.part.n >= equal {
			return s
		}
		x = x.next
	}
	s := t.active.bySize.items[0].first
	for range sought {
		if s == nil || s.age.held() {
			break
		}
		s = s.next
	}
	if s == nil || !s.age.held() {
		return t.aged.first.owner
	}
	return s
}

func (t *table) unage(s *series) { t.aged.drop(&s.age) }

// hurry lets a timer write a series when its count is due, a time that stays until unhurry.
func (t *table) hurry(s *series) { t.hurried.set(s, true) }

func (t *table) unhurry(s *series) { t.hurried.set(s, false) }
