// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evented-pleg/evented-pleg/cache"
)

// EventSink stores Events, as client-go's interface of that name does.
type EventSink interface {
	Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error)
	Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error)
	Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error)
}

// Sink notes, before another sink, the reports taken by the API server. The recorder does not write
// in the order of the reports: a namespace or an object may be in trouble for hours, and the count
// of a loop waits for its turn. Safe for concurrent use.
type Sink struct {
	EventSink

	mu sync.Mutex // owns the fields below
	// reports are with the recorder, and not known to be taken, the earliest first.
	reports []handed
	// tallies are of ends with the recorder that only the Event about their namespace counts.
	tallies map[eventKey]*tally
	handed  uint64 // number of both so far
}

// handed is a report with the recorder.
type handed struct {
	end    End
	number uint64
	key    eventKey
	// at is when it was handed over: the Event is later, by a moment, and earlier than the at of the
	// next report that the same Event may count.
	at time.Time
	// again: the report is in the ledger already.
	again bool
	// refused: the API server refused its Event. The recorder has dropped it, or tries again.
	refused bool
	// fate is what the recorder has told of it.
	fate fate
}

// fate is what a recorder tells of an event.
type fate int8

const (
	fateUntold   fate = iota // not yet, or never: the recorder is no tellingRecorder
	fateDropped              // no Event counts it
	fateOwn                  // an Event about equal ends counts it
	fateCombined             // an Event about all ends of the pod and kind counts it
)

// eventKey identifies the Events of equal ends.
type eventKey struct {
	namespace string
	pod       cache.UID
	fieldPath string
	reason    string
	action    string
}

// NewSink returns a sink before another, for the recorder's broadcaster and for [Config.Sink] of
// one reporter.
func NewSink(before EventSink) *Sink {
	return &Sink{EventSink: before, tallies: make(map[eventKey]*tally)}
}

// maxUnsent bounds the followed reports, and the tallies: an outage of the API server in a storm.
const maxUnsent = 4096

// add follows a report, before the recorder gets it, and returns the report's number.
func (s *Sink) add(e *End, again bool) uint64 {
	key := keyOf(e)
	at := s.timeFor(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reports) >= maxUnsent {
		s.reports = slices.Delete(s.reports, 0, 1)
	}
	s.handed++
	s.reports = append(s.reports, handed{
		end:    *e,
		number: s.handed,
		key:    key,
		at:     at,
		again:  again,
	})
	return s.handed
}

// told notes what the recorder has told of a report. What the recorder has dropped is followed no
// longer: the number of unsent Events cannot tell which of all reports was dropped.
func (s *Sink) told(number uint64, f fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.reports) - 1; i >= 0; i-- {
		r := &s.reports[i]
		if r.number != number {
			continue
		}
		r.fate = f
		if f == fateDropped {
			s.reports = slices.Delete(s.reports, i, i+1)
		}
		return
	}
}

// timeFor returns the time of a new report. It is later than the Events of the reports before, in
// whole microseconds as well: an Event's time tells which reports the Event counts. If a report for
// the same Event has just been handed over, timeFor waits for the clock.
func (s *Sink) timeFor(key eventKey) time.Time {
	now := time.Now()
	if !s.justHanded(key, now) {
		return now
	}
	return laterThan(now)
}

// laterThan waits for a time that is later in whole microseconds, too.
func laterThan(now time.Time) time.Time {
	at := now
	for at.Sub(now) <= time.Microsecond {
		time.Sleep(2 * time.Microsecond)
		at = time.Now()
	}
	return at
}

// justHanded reports whether the Event of a report of the last moments may count the next one, too.
func (s *Sink) justHanded(key eventKey, now time.Time) bool {
	const moments = time.Millisecond
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[key]
	if t != nil && now.Sub(t.spells[len(t.spells)-1].last) <= moments {
		return true
	}
	for _, r := range slices.Backward(s.reports) {
		if now.Sub(r.at) > moments {
			return false
		}
		if r.key.pod == key.pod && r.key.reason == key.reason {
			return true
		}
	}
	return false
}

// keyOf returns the key of the Event of an end.
func keyOf(e *End) eventKey {
	return eventKey{
		namespace: e.Pod.Namespace,
		pod:       e.Pod.UID,
		fieldPath: fieldPathOf(e),
		reason:    string(e.Kind),
		action:    actionOf(e),
	}
}

// Create stores a new event.
func (s *Sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.asked(e)
	stored, err := s.EventSink.Create(ctx, e)
	s.answered(e, lastOf(e), err)
	return stored, err
}

// Patch changes an event. A patch without a series is a read of the stored event: its times are in
// whole microseconds, rounded down.
func (s *Sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	s.asked(e)
	stored, err := s.EventSink.Patch(ctx, e, data)
	switch {
	case e.Series != nil || err != nil:
		s.answered(e, lastOf(e), err)
	case stored != nil:
		s.answered(e, lastOf(stored).Add(time.Microsecond), nil)
	}
	return stored, err
}

// lastOf returns the time of the last occurrence in an event.
func lastOf(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

// asked notes the beginning of a call.
func (s *Sink) asked(e *eventsv1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, t := range s.tallies {
		if key.countedIn(e) {
			t.seal(lastOf(e))
		}
	}
}

// answered books the answer to a call. The event counts the equal ends handed over until a time.
func (s *Sink) answered(e *eventsv1.Event, until time.Time, err error) {
	refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsNotFound(err)
	if err != nil && !refused {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.reports {
		if r := &s.reports[i]; r.countedIn(e) {
			r.refused = refused
		}
	}
	if err == nil {
		s.reports = slices.DeleteFunc(s.reports, func(r handed) bool {
			return r.countedIn(e) && !r.at.After(until)
		})
	}
	for key, t := range s.tallies {
		if !key.countedIn(e) {
			continue
		}
		t.refused = refused
		if err == nil {
			t.take(until)
		}
		s.tidy(key)
	}
}

// tidy forgets an empty tally. The caller holds the lock.
func (s *Sink) tidy(key eventKey) {
	if len(s.tallies[key].spells) == 0 {
		delete(s.tallies, key)
	}
}

// countedIn reports whether an event counts a report.
func (r *handed) countedIn(e *eventsv1.Event) bool {
	switch r.fate {
	case fateOwn:
		return r.key.isAbout(e) && r.key.equalIn(e)
	case fateCombined:
		return r.key.isAbout(e) && combines(e)
	default:
		return r.key.countedIn(e)
	}
}

// countedIn reports whether an event may count equal ends, their own or a combined one.
func (k eventKey) countedIn(e *eventsv1.Event) bool {
	return k.isAbout(e) && (combines(e) || k.equalIn(e))
}

// isAbout reports whether an event is about the pod, for the kind of end.
func (k eventKey) isAbout(e *eventsv1.Event) bool {
	about := &e.Regarding
	return k.pod == cache.UID(about.UID) && k.namespace == about.Namespace && k.reason == e.Reason
}

// equalIn reports whether an event that isAbout the pod is about equal ends.
func (k eventKey) equalIn(e *eventsv1.Event) bool {
	return k.action == e.Action && k.fieldPath == e.Regarding.FieldPath
}

// combines reports whether an event counts different ends of a pod together, above the recorder's
// limits. Its action is the reason.
func combines(e *eventsv1.Event) bool { return e.Action == e.Reason }

// bound drops the reports that the recorder has given up later than when it took them: only the
// given number waits there. The recorder gives up refused reports first.
func (s *Sink) bound(unsent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	excess := s.total() - max(unsent, 0)
	for _, refused := range []bool{true, false} {
		s.reports = slices.DeleteFunc(s.reports, func(r handed) bool {
			drop := excess > 0 && r.refused == refused
			if drop {
				excess--
			}
			return drop
		})
		for _, key := range s.sortedTallies() {
			if s.tallies[key].refused == refused {
				excess = s.tallies[key].drop(excess)
				s.tidy(key)
			}
		}
	}
}

// total returns the number of reports and combined ends. The caller holds the lock.
func (s *Sink) total() int64 {
	n := int64(len(s.reports))
	for _, t := range s.tallies {
		n += t.ends()
	}
	return n
}

// sortedTallies returns the keys of the tallies in order. The caller holds the lock.
func (s *Sink) sortedTallies() []eventKey {
	return slices.SortedFunc(maps.Keys(s.tallies), func(a, b eventKey) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.reason, b.reason))
	})
}

// unsentKey identifies a list of unsent reports: their number, and the sum of their numbers. A
// later report has a larger number.
type unsentKey struct {
	length int
	sum    uint64
}

// unsent are reports, and combined ends, for the next process to make again.
type unsent struct {
	ends     []End
	combined []combined
	key      unsentKey
	// next is when the first of the others was handed over; zero: there is none.
	next time.Time
}

// unsent returns what was handed over until a time, or by an earlier process.
func (s *Sink) unsent(until time.Time) (all unsent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reports {
		switch {
		case r.again || !r.at.After(until):
			all.ends = append(all.ends, r.end)
			all.key.add(1, r.number)
		default:
			all.before(r.at)
		}
	}
	for _, key := range s.sortedTallies() {
		c := combined{Namespace: key.namespace, Kind: Kind(key.reason)}
		for _, p := range s.tallies[key].spells {
			switch {
			case p.again || !p.first.After(until): // joined ends go together, as early as the first
				c.Ends += p.ends
				all.key.add(int(p.ends), p.numbers)
			default:
				all.before(p.first)
			}
		}
		if c.Ends > 0 {
			all.combined = append(all.combined, c)
		}
	}
	return all
}

// add adds reports, with the sum of their numbers.
func (k *unsentKey) add(length int, sum uint64) {
	k.length += length
	k.sum += sum
}

// before lowers next to a time.
func (u *unsent) before(at time.Time) {
	if u.next.IsZero() || at.Before(u.next) {
		u.next = at
	}
}

// waiting returns the number of reports and combined ends not known to be taken.
func (s *Sink) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.total())
}
