// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventstest is an in-memory API server for Events only. The server accepts and refuses the
// same Events as a kube-apiserver, lets Events expire, and fails on demand. eventstest shares no
// code with package events, and so none of its bugs.
//
// # Model
//
// A [Server] is used as a sink ([Server.Sink], [Server.LegacySink]), also in testing/synctest
// bubbles, or as an [net/http.Handler], for real clients. Both see the same objects. Times are
// those of package time, hence virtual in a bubble.
//
// # Concurrency
//
// All methods are safe for concurrent use. Faults are called without a lock held.
package eventstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultTTL is how long a kube-apiserver keeps an event after its last write.
const DefaultTTL = time.Hour

// Verb is the kind of a call.
type Verb string

// The known calls.
const (
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
)

// Call is a received request.
type Call struct {
	At        time.Time
	Verb      Verb
	Group     string // of the API: "" for core/v1, or events.k8s.io
	Namespace string
	Name      string
	Body      string // of a patch
	Err       error  // the answer
}

// Fault decides the outcome of a call before the server handles the call. A nil error lets the call
// pass, and a [*LateError] lets it pass later. Fault may block until ctx ends.
type Fault func(ctx context.Context, c Call) error

// LateError is the error of a [Fault] with which the client gives up a call that the server carries
// out all the same: a connection breaks off, or a timeout ends, before a slow server is done.
type LateError struct {
	// After is the time from the answer to the effect.
	After time.Duration
	// Err is the answer, not nil.
	Err error
}

// Error implements error.
func (e *LateError) Error() string { return fmt.Sprintf("%v (carried out %v later)", e.Err, e.After) }

// Unwrap returns the answer.
func (e *LateError) Unwrap() error { return e.Err }

// AfterFault replaces the answer of a successful call with an error, like a lost answer.
type AfterFault func(c Call) error

// Server is the API server. The zero value is not usable: see [NewServer].
type Server struct {
	mu      sync.Mutex // guards everything below
	ttl     time.Duration
	fault   Fault
	after   AfterFault
	version int64
	events  map[string]*entry
	calls   []Call
}

type entry struct {
	obj     *eventsv1.Event
	expires time.Time
}

// NewServer returns a server without events and faults.
func NewServer() *Server {
	return &Server{ttl: DefaultTTL, events: map[string]*entry{}}
}

// SetTTL changes how long events live after a write, from the next write on.
func (s *Server) SetTTL(d time.Duration) { s.set(func() { s.ttl = d }) }

// SetFault sets the fault for calls from now on; nil for none.
func (s *Server) SetFault(f Fault) { s.set(func() { s.fault = f }) }

// SetAfterFault sets the fault for answers from now on; nil for none.
func (s *Server) SetAfterFault(f AfterFault) { s.set(func() { s.after = f }) }

func (s *Server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Events returns copies of the unexpired stored Events, written by either API, in the order of
// their creation.
func (s *Server) Events() []eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []eventsv1.Event
	now := time.Now()
	for _, e := range s.events {
		if now.Before(e.expires) {
			out = append(out, *e.obj.DeepCopy())
		}
	}
	slices.SortFunc(out, func(a, b eventsv1.Event) int { return cmp.Compare(a.Generation, b.Generation) })
	return out
}

// Calls returns the recorded calls, the oldest first.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how many calls came in, and how many of these were answered with an error.
func (s *Server) Count() (all, failed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.Err != nil {
			failed++
		}
	}
	return int64(len(s.calls)), failed
}

// serve runs a call through the faults and records the call.
func (s *Server) serve(ctx context.Context, c Call, do func() error) (err error) {
	c.At = time.Now()
	s.mu.Lock()
	fault := s.fault
	after := s.after
	s.mu.Unlock()
	if fault != nil {
		err = fault(ctx, c)
	}
	var late *LateError
	if errors.As(err, &late) {
		err = late.Err
		time.AfterFunc(late.After, func() {
			s.set(func() { _ = do() }) // the client no longer asks
		})
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		s.set(func() { err = do() })
	}
	if err == nil && after != nil {
		err = after(c)
	}
	c.Err = err
	s.set(func() { s.calls = append(s.calls, c) })
	return err
}

var (
	eventsResource = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	eventsKind     = schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}
)

// check applies the rules for an event of either API and, outside of core/v1, those of newer.
func check(e *eventsv1.Event, core bool, newer func() field.ErrorList) error {
	errs := validateEvent(e)
	if !core {
		errs = append(errs, newer()...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(eventsKind, e.Name, errs)
	}
	return nil
}

// create stores a new event if the rules of the calling API allow the event.
func (s *Server) create(e *eventsv1.Event, core bool) (*eventsv1.Event, error) {
	err := check(e, core, func() field.ErrorList { return validateCreate(e) })
	if err != nil {
		return nil, err
	}
	if s.find(keyOf(e)) != nil {
		return nil, apierrors.NewAlreadyExists(eventsResource, e.Name)
	}
	s.version++
	e.Generation = s.version // the order of creation; a real server leaves Generation unset
	return s.store(e), nil
}

func keyOf(e *eventsv1.Event) string { return e.Namespace + "/" + e.Name }

// find returns the unexpired stored event, nil for none.
func (s *Server) find(key string) *eventsv1.Event {
	if e := s.events[key]; e != nil && time.Now().Before(e.expires) {
		return e.obj
	}
	return nil
}

// store keeps the event as encoded in JSON: times have six digits.
func (s *Server) store(e *eventsv1.Event) *eventsv1.Event {
	s.version++
	e.ResourceVersion = fmt.Sprint(s.version)
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // an Event always has an encoding
	}
	kept := &eventsv1.Event{}
	if err := json.Unmarshal(data, kept); err != nil {
		panic(err)
	}
	s.events[keyOf(e)] = &entry{kept, time.Now().Add(s.ttl)}
	return kept
}

// replace stores another content of an event if the rules of the calling API allow the change.
func (s *Server) replace(old, e *eventsv1.Event, core bool) (*eventsv1.Event, error) {
	if e.ResourceVersion != "" && e.ResourceVersion != old.ResourceVersion {
		return nil, apierrors.NewConflict(eventsResource, e.Name, fmt.Errorf("the object has been modified"))
	}
	err := check(e, core, func() field.ErrorList { return validateUpdate(e, old) })
	if err != nil {
		return nil, err
	}
	e.Generation = old.Generation
	return s.store(e), nil
}

// CoreEvent returns the core/v1 form of an event.
func CoreEvent(e *eventsv1.Event) *corev1.Event {
	c := &corev1.Event{
		ObjectMeta:          *e.ObjectMeta.DeepCopy(),
		InvolvedObject:      e.Regarding,
		Related:             e.Related.DeepCopy(),
		Reason:              e.Reason,
		Message:             e.Note,
		Type:                e.Type,
		Action:              e.Action,
		Source:              e.DeprecatedSource,
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
		EventTime:           e.EventTime,
		FirstTimestamp:      e.DeprecatedFirstTimestamp,
		LastTimestamp:       e.DeprecatedLastTimestamp,
		Count:               e.DeprecatedCount,
	}
	if e.Series != nil {
		series := corev1.EventSeries(*e.Series)
		c.Series = &series
	}
	return c
}

// fromCore returns the events.k8s.io/v1 form of an event.
func fromCore(c *corev1.Event) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta:               *c.ObjectMeta.DeepCopy(),
		Regarding:                c.InvolvedObject,
		Related:                  c.Related.DeepCopy(),
		Reason:                   c.Reason,
		Note:                     c.Message,
		Type:                     c.Type,
		Action:                   c.Action,
		DeprecatedSource:         c.Source,
		ReportingController:      c.ReportingController,
		ReportingInstance:        c.ReportingInstance,
		EventTime:                c.EventTime,
		DeprecatedFirstTimestamp: c.FirstTimestamp,
		DeprecatedLastTimestamp:  c.LastTimestamp,
		DeprecatedCount:          c.Count,
	}
	if c.Series != nil {
		series := eventsv1.EventSeries(*c.Series)
		e.Series = &series
	}
	return e
}
