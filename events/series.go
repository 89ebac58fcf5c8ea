// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of this package. The prefix is not for callers.
const (
	annotationPrefix = "series.evented-pleg.io/"
	// AnnotationState is the state of the series as the redesign proposal defines it: Ongoing, Finished or Unknown (the reporter stopped
	// before it could tell). A singleton has none.
	AnnotationState = annotationPrefix + "state"
	// AnnotationLatest stands on the first of several series of one key while it is stored: the number of a later one, and when that was noted.
	AnnotationLatest = annotationPrefix + "latest"
)

// series is one entry of the table: the state, what it is about, and its places in the lists. Guarded by the broadcaster's lock, but for
// template, which does not change.
type series struct {
	key      seriesKey
	id       seriesID
	object   objectKey
	st       state
	template *eventsv1.Event // everything but name, eventTime and series
	name     string          // of the stored object where it is not of our making, "" otherwise

	current  bool // found by its key: takes occurrences
	inflight bool
	waiting  bool // counted in table.pending: never written yet
	probed   bool // the server was asked whether it knows Events at all
	attempts int  // failures since the last success that were, or may have been, about this one
	// okBefore is how many writes had succeeded at the first of these; retryAt is not before when it may be tried again.
	okBefore int64
	retryAt  time.Time

	queue        *seriesList // which list it waits in, nil for none
	qnext, qprev *series
	lnext, lprev *series // the table's list by age of the last occurrence
	listed       bool
	wake         time.Time
	heapIndex    int // -1: not in the heap
}

// event is the object of an op.
func (s *series) event(o op) *eventsv1.Event {
	e := *s.template
	e.Name = s.name
	if e.Name == "" {
		e.Name = eventName(s.template.Regarding.Name, s.id, o.epoch)
	}
	e.EventTime = metav1.NewMicroTime(s.st.eventTime)
	e.Annotations = nil
	if len(s.template.Annotations) > 0 || o.state != "" {
		e.Annotations = make(map[string]string, len(s.template.Annotations)+1)
		maps.Copy(e.Annotations, s.template.Annotations)
		if o.state != "" {
			e.Annotations[AnnotationState] = o.state
		}
	}
	if o.series {
		e.Series = &eventsv1.EventSeries{Count: count32(o.count), LastObservedTime: metav1.NewMicroTime(o.last)}
	}
	if s.template.Related != nil {
		related := *s.template.Related
		e.Related = &related
	}
	return &e
}

// patch is the body of an op that is not a create.
func (o *op) patch() []byte {
	switch o.kind {
	case opPoint:
		// The time makes it a change: a patch that changes nothing is not written, and does not prolong the object's life.
		return []byte(`{"metadata":{"annotations":{"` + AnnotationLatest + `":"` + strconv.FormatUint(uint64(o.latest), 10) +
			" " + o.last.UTC().Format(time.RFC3339) + `"}}}`)
	case opPatch:
		b := make([]byte, 0, 192)
		b = append(b, `{"metadata":{"annotations":{"`+AnnotationState+`":"`...)
		b = append(b, o.state...)
		b = append(b, `"}},"series":{"count":`...)
		b = strconv.AppendInt(b, int64(count32(o.count)), 10)
		b = append(b, `,"lastObservedTime":"`...)
		b = o.last.UTC().AppendFormat(b, metav1.RFC3339Micro)
		return append(b, `"}}`...)
	}
	return []byte("{}")
}

// count32 is what the API can hold of a count.
func count32(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// look reads what a stored object says about its series.
func (s *series) look(e *eventsv1.Event) snapshot {
	if e == nil {
		return snapshot{}
	}
	t := s.template
	seen := snapshot{
		ours: e.ReportingController == t.ReportingController && e.ReportingInstance == t.ReportingInstance &&
			e.Type == t.Type && e.Reason == t.Reason && e.Action == t.Action && sameObject(&e.Regarding, &t.Regarding) && sameRelated(e.Related, t.Related),
		eventTime: e.EventTime.Time,
		count:     1,
		last:      e.EventTime.Time,
		state:     e.Annotations[AnnotationState],
	}
	if e.Series != nil {
		seen.series, seen.count, seen.last = true, int64(e.Series.Count), e.Series.LastObservedTime.Time
	}
	latest, _, _ := strings.Cut(e.Annotations[AnnotationLatest], " ")
	if n, err := strconv.ParseUint(latest, 10, 32); err == nil && n < saltEpochs {
		seen.latest = uint32(n)
	}
	return seen
}

func sameObject(a, b *corev1.ObjectReference) bool {
	return a.Kind == b.Kind && a.APIVersion == b.APIVersion && a.Namespace == b.Namespace && a.Name == b.Name && a.UID == b.UID && a.FieldPath == b.FieldPath
}

func sameRelated(a, b *corev1.ObjectReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameObject(a, b)
}
