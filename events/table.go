// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
	"maps"
	"math"
	"time"

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
	// AnnotationRoster holds the names of a reporter's series, on a single Event. A restarted
	// reporter finds its series by the roster.
	AnnotationRoster = annotationPrefix + "roster"
)

// series is an entry of the table: the identity, the state, and its places in the lists. Guarded by
// the broadcaster's lock, but for the content, which does not change.
type series struct {
	key     seriesKey
	hash    uint64 // of the key
	pair    uint64 // hashes of parts of the key: pair and, where notes count, notes
	notes   uint64
	id      seriesID
	name    string // of the object
	content content
	st      state

	left     bool // in table.left: the key is a placeholder
	counted  bool // in table.pending: never stored
	inflight bool
	seen     uint32   // the roster's shared when the object's content was last known
	trouble  *trouble // failures since the last success, nil for none

	waits *list.Element // place among the calls owed, nil for none
	in    *list.List    // the list of waits
	age   *list.Element // place in table.aged
}

// identify sets the key and the fields derived from the key.
func (s *series) identify(key seriesKey, src source) {
	s.key, s.hash, s.id, s.pair = key, key.hash(), key.id(src), key.pair()
	if key.note != "" {
		s.notes = key.notes()
	}
}

// content is the stored content of a series besides its key, as of its first occurrence.
type content struct {
	namespace, note                  string
	annotations                      map[string]string
	regardingVersion, relatedVersion string
}

// event returns the object of a call.
func (s *series) event(src source, c call) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: s.name, Namespace: s.content.namespace, ResourceVersion: c.version},
		EventTime:           metav1.NewMicroTime(s.st.begun),
		ReportingController: src.controller,
		ReportingInstance:   src.instance,
		Action:              cut(s.key.action, maxWord),
		Reason:              cut(s.key.reason, maxWord),
		Regarding:           s.key.regarding.reference(s.content.regardingVersion),
		Note:                s.content.note,
		Type:                s.key.eventType,
	}
	if s.key.related != (refKey{}) {
		related := s.key.related.reference(s.content.relatedVersion)
		e.Related = &related
	}
	if s.content.annotations != nil || c.state != "" {
		e.Annotations = make(map[string]string, len(s.content.annotations)+2)
		maps.Copy(e.Annotations, s.content.annotations)
		maps.Copy(e.Annotations, c.annotations())
	}
	if c.state != "" {
		e.Series = c.series()
	}
	return e
}

// series returns the series field of the object.
func (c *call) series() *eventsv1.EventSeries {
	return &eventsv1.EventSeries{Count: int32(min(c.count, math.MaxInt32)), LastObservedTime: metav1.NewMicroTime(c.last)}
}

// annotations returns the annotations set by a call.
func (c *call) annotations() map[string]string {
	out := map[string]string{}
	if c.state != "" {
		out[AnnotationState] = c.state
	}
	if c.loose {
		out[AnnotationAtLeast] = "true"
	}
	return out
}

// look returns a stored object's content about its series.
func look(e *eventsv1.Event) found {
	f := found{
		begun: e.EventTime.Time, count: 1, last: e.EventTime.Time, state: e.Annotations[AnnotationState],
		loose: e.Annotations[AnnotationAtLeast] != "", version: e.ResourceVersion,
	}
	if e.Series != nil {
		f.count, f.last = max(int64(e.Series.Count), 1), e.Series.LastObservedTime.Time
	}
	return f
}

// table holds every known series and the lists of waiting series. Guarded by the broadcaster's
// lock. No function of table blocks.
type table struct {
	byKey   map[uint64]*series // by hash; of two keys with one hash the later series ends the earlier
	all     int                // series in memory
	pending int                // of these, never stored
	pairs   map[uint64]int     // series of each pair of objects, by hash
	notes   map[uint64]int     // series with different notes only, by hash
	urgent  *list.List         // of *series: evicted ones; their final counts go first
	queue   *list.List         // of *series: others with a call to make, in the order of emission
	idle    *list.List         // of *series: those in left, to be read when nothing else is owed
	aged    *list.List         // of *series: those not pending, the longest quiet first
	left    map[hint]*series   // objects left by an earlier process, of unknown key
	gone    map[seriesID]gone  // evicted series
}

// hint is the prefix of a series' ID at the end of its object's name.
type hint [4]byte

// gone is an evicted series: what its continuation needs. At most 128 bytes lie in a map itself.
type gone struct {
	name, version    string
	begun, last, due time.Time
	stored           int64
	early            uint8
	loose            bool
}

func newTable() table {
	return table{
		byKey: map[uint64]*series{}, pairs: map[uint64]int{}, notes: map[uint64]int{}, left: map[hint]*series{}, gone: map[seriesID]gone{},
		urgent: list.New(), queue: list.New(), idle: list.New(), aged: list.New(),
	}
}

// count books a series' entry into memory (+1) or removal (-1).
func (t *table) count(s *series, n int) {
	t.all += n
	bump(t.pairs, s.pair, n)
	if s.key.note != "" {
		bump(t.notes, s.notes, n)
	}
}

func bump[K comparable](m map[K]int, k K, n int) {
	if m[k] += n; m[k] == 0 {
		delete(m, k)
	}
}

// find returns the series of a key, nil for none.
func (t *table) find(k *seriesKey, hash uint64) *series {
	if s := t.byKey[hash]; s != nil && s.key == *k {
		return s
	}
	return nil
}

// known reports whether a new series continues an evicted one, or perhaps an earlier process's.
func (t *table) known(s *series) bool {
	_, evicted := t.gone[s.id]
	return evicted || t.left[s.id.hint()] != nil
}

// retire detaches a series from its key; calls may still be owed.
func (t *table) retire(s *series) {
	if t.byKey[s.hash] == s {
		delete(t.byKey, s.hash)
	}
	t.unage(s)
}

// forget drops a series for good.
func (t *table) forget(s *series) {
	t.retire(s)
	t.dequeue(s)
	t.pend(s, false)
	t.count(s, -1)
}

// pend books whether a series was never stored.
func (t *table) pend(s *series, pending bool) {
	switch {
	case pending && !s.counted:
		t.pending++
	case !pending && s.counted:
		t.pending--
	}
	s.counted = pending
}

// enqueue appends a series to the calls owed. It reports whether the series was added.
func (t *table) enqueue(s *series) bool {
	if s.waits != nil || s.inflight {
		return false
	}
	t.move(s, t.home(s), false)
	return true
}

// home returns the list for a series with a call to make.
func (t *table) home(s *series) *list.List {
	switch {
	case s.left:
		return t.idle
	case s.st.end == evicted:
		return t.urgent
	}
	return t.queue
}

// addLeft takes in an object left by an earlier process, by its name.
func (t *table) addLeft(source uint32, namespace, name string) {
	h, ok := hintOf(name)
	if !ok || t.left[h] != nil {
		return
	}
	s := &series{left: true, name: name, key: seriesKey{source: source, regarding: refKey{name: name}}, content: content{namespace: namespace}}
	s.st.phase = phaseUnread
	copy(s.id[:], h[:])
	t.left[h] = s
	t.enqueue(s)
}

// dropLeft ends the wait for an earlier process's object: the object has been read, or is another
// series' to read.
func (t *table) dropLeft(s *series) {
	if t.left[s.id.hint()] == s {
		delete(t.left, s.id.hint())
	}
	t.dequeue(s)
}

func (t *table) dequeue(s *series) {
	if s.waits != nil {
		s.in.Remove(s.waits)
		s.in, s.waits = nil, nil
	}
}

// move takes a series from its list of calls owed to the front or the back of another.
func (t *table) move(s *series, to *list.List, front bool) {
	t.dequeue(s)
	if s.in = to; front {
		s.waits = to.PushFront(s)
	} else {
		s.waits = to.PushBack(s)
	}
}

// touch puts a series into its place by age.
func (t *table) touch(s *series) {
	at, e := s.st.quiet(), t.aged.Back()
	for e != nil && (e == s.age || e.Value.(*series).st.quiet().After(at)) {
		e = e.Prev()
	}
	switch {
	case s.age == nil && e == nil:
		s.age = t.aged.PushFront(s)
	case s.age == nil:
		s.age = t.aged.InsertAfter(s, e)
	case e == nil:
		t.aged.MoveToFront(s.age)
	default:
		t.aged.MoveAfter(s.age, e)
	}
}

func (t *table) unage(s *series) {
	if s.age != nil {
		t.aged.Remove(s.age)
		s.age = nil
	}
}

// leave remembers how far an evicted series has come, while there is room.
func (t *table) leave(s *series, room int) {
	for h := range t.gone {
		if len(t.gone) < room {
			break
		}
		delete(t.gone, h)
	}
	t.gone[s.id] = gone{s.name, s.st.version, s.st.begun, s.st.last, s.st.due, s.st.stored, s.st.early, s.st.loose}
}

// limiter is a token bucket per key: burst tokens, and another token every refill. A bucket is
// stored as the time of being full again. Guarded by the broadcaster's lock.
type limiter struct {
	burst int // < 0: no limit
	size  int
	full  map[uint64]time.Time
}

// has reports whether there is a token.
func (l *limiter) has(key uint64, now time.Time) bool {
	return l.burst < 0 || l.full[key].Sub(now)+refill <= time.Duration(l.burst)*refill
}

// allow takes a token, if available.
func (l *limiter) allow(key uint64, now time.Time) bool {
	at := l.full[key]
	if l.burst < 0 || at.Sub(now)+refill > time.Duration(l.burst)*refill {
		return l.burst < 0
	}
	if at.Before(now) {
		at = now
	}
	if len(l.full) >= l.size { // full buckets are removed, then all if too few were full
		maps.DeleteFunc(l.full, func(_ uint64, at time.Time) bool { return !at.After(now) })
		if len(l.full) >= l.size/2 {
			clear(l.full)
		}
	}
	l.full[key] = at.Add(refill)
	return true
}
