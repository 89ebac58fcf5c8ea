// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
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
	Namespace string
	Name      string
	Body      string // of a patch
	Err       error  // the answer
}

// Fault decides the outcome of a call before the server handles the call. A nil error lets the call
// pass. Fault may block until ctx ends.
type Fault func(ctx context.Context, c Call) error

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
	errs    int64
	all     int64
}

type entry struct {
	obj     *eventsv1.Event
	expires time.Time
}

// NewServer returns a server without events and faults. The server records the first 100,000 calls.
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
	return s.all, s.errs
}

// serve runs a call through the faults and records the call.
func (s *Server) serve(ctx context.Context, c Call, do func() error) (err error) {
	c.At = time.Now()
	s.mu.Lock()
	fault, after := s.fault, s.after
	s.mu.Unlock()
	if fault != nil {
		err = fault(ctx, c)
	}
	if err == nil {
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = do()
	}
	if err == nil && after != nil {
		err = after(c)
	}
	c.Err = err
	s.all++
	if err != nil {
		s.errs++
	}
	if len(s.calls) < 100_000 {
		s.calls = append(s.calls, c)
	}
	return err
}

var (
	eventsResource = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	eventsKind     = schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}
)

// create stores a new event if the rules of the calling API allow the event.
func (s *Server) create(in *eventsv1.Event, core bool) (*eventsv1.Event, error) {
	e := in.DeepCopy()
	errs := validateEvent(e)
	if !core {
		errs = append(errs, validateCreate(e)...)
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(eventsKind, e.Name, errs)
	}
	key := e.Namespace + "/" + e.Name
	if s.find(key) != nil {
		return nil, apierrors.NewAlreadyExists(eventsResource, e.Name)
	}
	s.version++
	e.Generation = s.version // the order of creation; a real server leaves Generation unset
	return s.store(key, e), nil
}

// find returns the unexpired stored event, nil for none.
func (s *Server) find(key string) *eventsv1.Event {
	if e := s.events[key]; e != nil && time.Now().Before(e.expires) {
		return e.obj
	}
	return nil
}

// store keeps the event as encoded in JSON: times have six digits.
func (s *Server) store(key string, e *eventsv1.Event) *eventsv1.Event {
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
	s.events[key] = &entry{kept, time.Now().Add(s.ttl)}
	return kept.DeepCopy()
}

// patch applies a strategic merge patch to the event's form in the calling API.
func (s *Server) patch(namespace, name string, data []byte, core bool) (*eventsv1.Event, error) {
	key := namespace + "/" + name
	old := s.find(key)
	if old == nil {
		return nil, apierrors.NewNotFound(eventsResource, name)
	}
	if core {
		return patched(s, key, old, data, CoreEvent(old), true, func(c *corev1.Event) *eventsv1.Event { return fromCore(c) })
	}
	return patched(s, key, old, data, old, false, func(e *eventsv1.Event) *eventsv1.Event { return e })
}

func patched[T any](s *Server, key string, old *eventsv1.Event, data []byte, form *T, core bool, back func(*T) *eventsv1.Event) (*eventsv1.Event, error) {
	before, err := json.Marshal(form)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, data, *new(T))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	changed := new(T)
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if same, err := json.Marshal(changed); err == nil && string(before) == string(same) {
		return old.DeepCopy(), nil // nothing changed: no write, and no longer life
	}
	return s.replace(key, old, back(changed), core)
}

func (s *Server) replace(key string, old, e *eventsv1.Event, core bool) (*eventsv1.Event, error) {
	if e.ResourceVersion != "" && e.ResourceVersion != old.ResourceVersion {
		return nil, apierrors.NewConflict(eventsResource, e.Name, fmt.Errorf("the object has been modified"))
	}
	errs := validateEvent(e)
	if !core {
		errs = append(errs, validateUpdate(e, old)...)
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(eventsKind, e.Name, errs)
	}
	e.Generation = old.Generation
	return s.store(key, e), nil
}

func (s *Server) update(in *eventsv1.Event, core bool) (*eventsv1.Event, error) {
	key := in.Namespace + "/" + in.Name
	old := s.find(key)
	if old == nil {
		return s.create(in, core)
	}
	return s.replace(key, old, in.DeepCopy(), core)
}

// CoreEvent returns the core/v1 form of an event.
func CoreEvent(e *eventsv1.Event) *corev1.Event {
	c := &corev1.Event{
		ObjectMeta: *e.ObjectMeta.DeepCopy(), InvolvedObject: e.Regarding, Related: e.Related, Reason: e.Reason, Message: e.Note,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
		Type: e.Type, EventTime: e.EventTime, Action: e.Action, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		c.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return c
}

func fromCore(c *corev1.Event) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: *c.ObjectMeta.DeepCopy(), Regarding: c.InvolvedObject, Related: c.Related, Reason: c.Reason, Note: c.Message,
		DeprecatedSource: c.Source, DeprecatedFirstTimestamp: c.FirstTimestamp, DeprecatedLastTimestamp: c.LastTimestamp, DeprecatedCount: c.Count,
		Type: c.Type, EventTime: c.EventTime, Action: c.Action, ReportingController: c.ReportingController, ReportingInstance: c.ReportingInstance,
	}
	if c.Series != nil {
		e.Series = &eventsv1.EventSeries{Count: c.Series.Count, LastObservedTime: c.Series.LastObservedTime}
	}
	return e
}
