// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
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
	// AnnotationRoster holds the names of a reporter's series, on a single Event. A restarted
	// reporter finds its series by the roster.
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

	known    bool // in table.known: the server has answered
	inflight bool
	seen     uint32   // the roster's shared when the object's content was last known
	trouble  *trouble // failures since the last success, nil for none

	waits *list.Element // in its queue, nil if not
	queue *list.List    // table.queue or table.held
	age   *list.Element // in table.aged
}

// content is the stored content of a series besides its key, as of its first occurrence.
type content struct {
	namespace, note                  string
	annotations                      map[string]string
	regardingVersion, relatedVersion string
}

func newSeries(key seriesKey, src source, c content) *series {
	s := &series{key: key, hash: hash(key), id: key.id(src), pair: key.pair(), content: c}
	if key.note != "" {
		s.notes = key.notes()
	}
	return s
}

func (s *series) event(src source, c call) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: s.name, Namespace: s.content.namespace, ResourceVersion: c.version},
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
	if c.state != "" {
		e.Series = &eventsv1.EventSeries{Count: int32(min(c.count, math.MaxInt32)), LastObservedTime: metav1.NewMicroTime(c.last)}
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, AnnotationState, c.state)
		if c.loose {
			metav1.SetMetaDataAnnotation(&e.ObjectMeta, AnnotationAtLeast, "true")
		}
	}
	return e
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

// object is the object that a series is about.
func (s *series) object() objectKey { return objectOf(&s.key.regarding) }

// path identifies the object of a series in a roster.
func (s *series) path() string { return s.content.namespace + "/" + s.name }

// table holds every series and the lists of waiting series. Guarded by the broadcaster's lock. No
// function of table blocks.
type table struct {
	byKey  map[uint64]*series // those that take occurrences, by the hash of their key
	all    int                // series in memory
	known  int                // of these, stored or refused; the others are pending
	counts map[uint64]int     // series of each pair of objects, and with different notes only, by hash
	queue  list.List          // those with a call to make: evicted ones, then in the order of emission
	held   list.List          // those with a call to make, behind a gate
	aged   list.List          // known ones that take occurrences, the longest quiet first
	gone   map[seriesID]gone  // evicted series
}

// gone is an evicted series: what its continuation needs.
type gone struct {
	name string
	st   state
}

func newTable() table {
	return table{
		byKey: map[uint64]*series{}, counts: map[uint64]int{}, gone: map[seriesID]gone{},
	}
}

// find returns the series of a key, nil for none.
func (t *table) find(k *seriesKey, hash uint64) *series {
	if s := t.byKey[hash]; s != nil && s.key == *k {
		return s
	}
	return nil
}

func (t *table) add(s *series) {
	t.byKey[s.hash] = s
	t.count(s, 1)
}

// count books a series' entry into memory (+1) or removal (-1).
func (t *table) count(s *series, n int) {
	t.all += n
	for _, k := range [...]uint64{s.pair, s.notes} {
		if t.counts[k] += n; t.counts[k] == 0 {
			delete(t.counts, k)
		}
	}
}

// retire detaches a series from its key; calls may still be owed.
func (t *table) retire(s *series) {
	if t.byKey[s.hash] == s {
		delete(t.byKey, s.hash)
	}
	t.unage(s)
}

func (t *table) forget(s *series) {
	t.retire(s)
	s.dequeue()
	t.count(s, -1)
	if s.known {
		t.known--
	}
}

// enqueue puts a series into a queue: at the front before later series.
func (s *series) enqueue(queue *list.List, front bool) {
	if s.dequeue(); front {
		s.waits = queue.PushFront(s)
	} else {
		s.waits = queue.PushBack(s)
	}
	s.queue = queue
}

func (s *series) dequeue() {
	if s.waits != nil {
		s.queue.Remove(s.waits)
		s.waits = nil
	}
}

// queued returns how many series have a call to make.
func (t *table) queued() int { return t.queue.Len() + t.held.Len() }

// touch puts a series into its place by age, nearly always the last.
func (t *table) touch(s *series) {
	if s.age == nil {
		s.age = t.aged.PushFront(s)
	}
	e := t.aged.Back()
	for e != s.age && e.Value.(*series).st.quiet().After(s.st.quiet()) {
		e = e.Prev()
	}
	t.aged.MoveAfter(s.age, e)
}

func (t *table) unage(s *series) {
	if s.age != nil {
		t.aged.Remove(s.age)
		s.age = nil
	}
}

// limiter is a token bucket per hash: burst tokens, and another token every refill. A bucket is
// stored as the time of being full again. Guarded by the broadcaster's lock.
type limiter struct {
	burst int // < 0: no limit
	size  int
	full  map[uint64]time.Time
}

func (l *limiter) has(key uint64, now time.Time) bool {
	return l.burst < 0 || l.full[key].Sub(now)+refill <= time.Duration(l.burst)*refill
}

// allow takes a token, if available.
func (l *limiter) allow(key uint64, now time.Time) bool {
	if l.burst < 0 || !l.has(key, now) {
		return l.burst < 0
	}
	at := l.full[key]
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
