// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
	"maps"
	"math"
	"strconv"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of this package. The prefix is not for callers.
const (
	annotationPrefix = "series.evented-pleg.io/"
	// AnnotationState is the state of the series as the redesign proposal defines it: Ongoing,
	// Finished or Unknown (the reporter stopped before it could tell). A singleton has none.
	AnnotationState = annotationPrefix + "state"
	// AnnotationAtLeast is "true" on a series whose count is a lower bound: a process was killed
	// while it counted.
	AnnotationAtLeast = annotationPrefix + "at-least"
	// AnnotationRoster holds, on the one Event by which a reporter that may not list events finds
	// them again after a restart, the names of its series.
	AnnotationRoster = annotationPrefix + "roster"
)

// series is one entry of the table: the state, what it is about, and its places in the lists.
// Guarded by the broadcaster's lock, but for template, which does not change.
type series struct {
	key      seriesKey
	id       seriesID
	object   objectKey
	st       state
	name     string          // of the stored object
	template *eventsv1.Event // everything but name, eventTime and series

	current  bool // found by its key: takes occurrences
	inflight bool
	waiting  bool      // counted in table.pending: never written yet
	attempts int       // failures since the last success that were, or may have been, about this series
	blamed   int       // of these, those between which writes of other series succeeded
	okBefore int64     // how many writes had succeeded at the last of these
	retryAt  time.Time // not before that may it be tried again

	waits     *list.Element // place among the calls owed, nil for none
	in        *list.List    // in which list
	age       *list.Element // place in table.aged
	wake      time.Time
	heapIndex int // -1: not in the heap
}

// event is the object of an op.
func (s *series) event(o op) *eventsv1.Event {
	e := *s.template
	e.Name = s.name
	e.EventTime = metav1.NewMicroTime(s.st.eventTime)
	e.Annotations = nil
	if len(s.template.Annotations) > 0 || o.state != "" {
		e.Annotations = make(map[string]string, len(s.template.Annotations)+2)
		maps.Copy(e.Annotations, s.template.Annotations)
		if o.state != "" {
			e.Annotations[AnnotationState] = o.state
		}
		if o.loose {
			e.Annotations[AnnotationAtLeast] = "true"
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

// patch is the body of a patch.
func (o *op) patch() []byte {
	b := make([]byte, 0, 256)
	b = append(b, `{"metadata":{"annotations":{"`+AnnotationState+`":"`...)
	b = append(b, o.state...)
	if o.loose {
		b = append(b, `","`+AnnotationAtLeast+`":"true`...)
	}
	b = append(b, `"}},"series":{"count":`...)
	b = strconv.AppendInt(b, int64(count32(o.count)), 10)
	b = append(b, `,"lastObservedTime":"`...)
	b = o.last.UTC().AppendFormat(b, metav1.RFC3339Micro)
	return append(b, `"}}`...)
}

// count32 is what the API can hold of a count.
func count32(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// look reads what a stored object says about its series.
func look(e *eventsv1.Event) found {
	f := found{
		eventTime: e.EventTime.Time, count: 1, last: e.EventTime.Time,
		state: e.Annotations[AnnotationState], loose: e.Annotations[AnnotationAtLeast] != "",
	}
	if e.Series != nil {
		f.series, f.count, f.last = true, max(int64(e.Series.Count), 1), e.Series.LastObservedTime.Time
	}
	return f
}
