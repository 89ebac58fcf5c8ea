// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
)

var _ clientevents.EventSink = (*ClientSink)(nil)

// ClientSink stores Events through a client, as core/v1 where the client's role allows that: its
// endpoint holds the same objects as events.k8s.io/v1 and lets a writer update count,
// firstTimestamp, lastTimestamp and source. kubectl describe and other readers sort by
// lastTimestamp alone. A call that is forbidden in one API group is made in the other, and the
// group is remembered for the namespace. Each call is a single request in a group: a REST client's
// own retries after a 429 would hide the 429 from the recorder, and the recorder could not hold
// back.
//
// A fake clientset keeps the objects of the two groups apart: a recorder with client-go's older
// interface writes core/v1 there, another one events.k8s.io/v1, as client-go's recorders do.
type ClientSink struct {
	core  coreGroup
	newer newerGroup
	fake  bool

	mu    sync.Mutex // guards roles
	roles groupRoles
}

// groupSink stores Events in an API group.
type groupSink = clientevents.EventSink

// NewClientSink returns a sink over the client. The client's rate limits apply: a call of the
// recorder waits for its turn as long as it takes, and has all of its time from then on. Where
// another caller's context leaves too little time for that wait, the error says that nothing was
// sent, and the recorder takes that for no fault of the server.
func NewClientSink(client kubernetes.Interface) *ClientSink {
	s := &ClientSink{
		core:  coreGroup{client.CoreV1()},
		newer: newerGroup{client.EventsV1()},
		roles: groupRoles{by: map[grant]role{}},
	}
	older, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
	s.fake = !ok || older == nil
	if s.fake {
		return s
	}
	s.core = coreGroup{typedcorev1.New(newSingle(older))}
	newer, ok := client.EventsV1().RESTClient().(*rest.RESTClient)
	if ok && newer != nil {
		s.newer = newerGroup{typedeventsv1.New(newSingle(newer))}
	}
	return s
}

// single is a REST client that makes each call once, when the client's rate limiter lets it.
type single struct {
	rest.Interface
	limit flowcontrol.RateLimiter // nil: no limit
}

func newSingle(client *rest.RESTClient) single {
	s := single{Interface: client}
	limiter := client.GetRateLimiter()
	if limiter != nil {
		s.limit = turn{limiter}
	}
	return s
}

func (s single) once(r *rest.Request) *rest.Request { return r.MaxRetries(0).Throttle(s.limit) }

func (s single) Post() *rest.Request { return s.once(s.Interface.Post()) }

func (s single) Put() *rest.Request { return s.once(s.Interface.Put()) }

func (s single) Patch(t types.PatchType) *rest.Request { return s.once(s.Interface.Patch(t)) }

// interfaceSink is a sink that stores the events of the two kinds of recorders differently.
type interfaceSink interface {
	sinkFor(older bool) clientevents.EventSink
}

func (s *ClientSink) sinkFor(older bool) clientevents.EventSink {
	switch {
	case !s.fake:
		return s
	case older:
		return s.core
	}
	return s.newer
}

// Create stores a new event.
func (s *ClientSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.call(grant{e.Namespace, callCreate}, func(g groupSink) (*eventsv1.Event, error) {
		return g.Create(ctx, e)
	})
}

// Update replaces an event. The recorder never calls Update.
func (s *ClientSink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.call(grant{e.Namespace, "update"}, func(g groupSink) (*eventsv1.Event, error) {
		return g.Update(ctx, e)
	})
}

// Patch applies a strategic merge patch to the named event. In core/v1, a patch of the series also
// sets the fields count and lastTimestamp.
func (s *ClientSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.call(grant{e.Namespace, callPatch}, func(g groupSink) (*eventsv1.Event, error) {
		return g.Patch(ctx, e, data)
	})
}

// call makes a call in the group that the role is known to allow, and after a 403 in the other. A
// namespace that no request can name is refused here: client-go's own error for it looks like a
// broken connection.
func (s *ClientSink) call(g grant, do func(groupSink) (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	if bad := rest.IsValidPathSegmentName(g.namespace); len(bad) > 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the namespace is %q: %s", g.namespace, bad[0]))
	}
	s.mu.Lock()
	now := time.Now()
	newer, other := s.roles.choose(g, now)
	s.mu.Unlock()
	out, err := do(s.group(newer))
	if !other || !roleForbids(err) {
		return out, err
	}
	again, refused := do(s.group(!newer))
	s.mu.Lock()
	defer s.mu.Unlock()
	if roleForbids(refused) {
		s.roles.denied(g, now)
		return out, err
	}
	s.roles.allowed(g, !newer)
	return again, refused
}

func (s *ClientSink) group(newer bool) groupSink {
	if newer {
		return s.newer
	}
	return s.core
}

// roleForbids reports whether a role may be the reason of an error.
func roleForbids(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// groupRoles is the knowledge about the API group that a role covers, by namespace and kind of
// call. The zero role is core/v1.
type groupRoles struct {
	by map[grant]role
	// newer: the last group found by a 403 is events.k8s.io. Namespaces about which nothing is known
	// are tried there first.
	newer bool
}

type role struct {
	newer bool
	// denied is when both groups were forbidden, zero for never. For a while, one is tried alone.
	denied time.Time
}

const (
	maxRoles  = 8192
	roleRests = time.Minute
)

// choose returns the group for a call, and whether the other may be tried after a 403.
func (r *groupRoles) choose(g grant, now time.Time) (newer, other bool) {
	known, ok := r.by[g]
	if !ok {
		return r.newer, true
	}
	return known.newer, known.denied.IsZero() || now.Sub(known.denied) >= roleRests
}

func (r *groupRoles) allowed(g grant, newer bool) {
	r.newer = newer
	r.set(g, role{newer: newer})
}

func (r *groupRoles) denied(g grant, now time.Time) {
	known := r.by[g]
	known.denied = now
	r.set(g, known)
}

func (r *groupRoles) set(g grant, to role) {
	if len(r.by) >= maxRoles {
		clear(r.by)
	}
	g.namespace = strings.Clone(g.namespace) // of a series, which this outlives
	r.by[g] = to
}

// newerGroup stores Events as events.k8s.io/v1.
type newerGroup struct {
	client typedeventsv1.EventsGetter
}

// Create stores a new event.
func (g newerGroup) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return g.client.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
}

// Update replaces an event.
func (g newerGroup) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return g.client.Events(e.Namespace).Update(ctx, e, metav1.UpdateOptions{})
}

// Patch applies a strategic merge patch.
func (g newerGroup) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return g.client.Events(e.Namespace).Patch(
		ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
}

// coreGroup stores Events as core/v1.
type coreGroup struct {
	client typedcorev1.EventsGetter
}

// Create stores a new event.
func (g coreGroup) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	out, err := g.client.Events(e.Namespace).Create(ctx, coreEvent(e), metav1.CreateOptions{})
	return seriesEvent(out), err
}

// Update replaces an event.
func (g coreGroup) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	out, err := g.client.Events(e.Namespace).Update(ctx, coreEvent(e), metav1.UpdateOptions{})
	return seriesEvent(out), err
}

// Patch applies a strategic merge patch, with the fields of core/v1.
func (g coreGroup) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	var patch struct {
		Metadata json.RawMessage       `json:"metadata,omitempty"`
		Series   *eventsv1.EventSeries `json:"series,omitempty"`
		Count    int32                 `json:"count,omitempty"`
		Last     *metav1.Time          `json:"lastTimestamp,omitempty"`
	}
	err := json.Unmarshal(data, &patch)
	if err == nil && patch.Series != nil {
		patch.Count = patch.Series.Count
		patch.Last = &metav1.Time{Time: patch.Series.LastObservedTime.Time}
		data, err = json.Marshal(patch)
		if err != nil {
			return nil, err
		}
	}
	out, err := g.client.Events(e.Namespace).Patch(
		ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	return seriesEvent(out), err
}

// coreEvent is the core/v1 form of an event.
func coreEvent(e *eventsv1.Event) *corev1.Event {
	c := &corev1.Event{
		ObjectMeta:     e.ObjectMeta,
		InvolvedObject: e.Regarding,
		Related:        e.Related,
		Reason:         e.Reason,
		Message:        e.Note,
		Type:           e.Type,
		Action:         e.Action,
		Source: corev1.EventSource{
			Component: e.ReportingController,
			Host:      e.ReportingInstance,
		},
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
		EventTime:           e.EventTime,
		FirstTimestamp:      metav1.NewTime(e.EventTime.Time),
		LastTimestamp:       metav1.NewTime(e.EventTime.Time),
		Count:               1,
	}
	if e.Series != nil {
		c.Series = &corev1.EventSeries{
			Count:            e.Series.Count,
			LastObservedTime: e.Series.LastObservedTime,
		}
		c.Count = e.Series.Count
		c.LastTimestamp = metav1.NewTime(e.Series.LastObservedTime.Time)
	}
	return c
}

// seriesEvent is the events.k8s.io/v1 form of a core/v1 event, nil for nil.
func seriesEvent(c *corev1.Event) *eventsv1.Event {
	if c == nil {
		return nil
	}
	e := &eventsv1.Event{
		ObjectMeta:          c.ObjectMeta,
		Regarding:           c.InvolvedObject,
		Related:             c.Related,
		Reason:              c.Reason,
		Note:                c.Message,
		Type:                c.Type,
		Action:              c.Action,
		EventTime:           c.EventTime,
		ReportingController: c.ReportingController,
		ReportingInstance:   c.ReportingInstance,
	}
	if c.Series != nil {
		e.Series = &eventsv1.EventSeries{
			Count:            c.Series.Count,
			LastObservedTime: c.Series.LastObservedTime,
		}
	}
	return e
}

// NewForClient is New with a sink over the client, unless opts has a Sink. With a fake clientset
// there is no roster, and ClusterNamespace is "default" as in client-go's recorders: tests find the
// events of their code where client-go would put them.
func NewForClient(client kubernetes.Interface, opts Options) (*Broadcaster, error) {
	if client == nil {
		return nil, errors.New("events: the client is nil")
	}
	if opts.Sink == nil {
		sink := NewClientSink(client)
		opts.Sink = sink
		if sink.fake {
			opts.NoRoster = true
			opts.ClusterNamespace = cmp.Or(opts.ClusterNamespace, metav1.NamespaceDefault)
		}
	}
	return New(opts)
}
