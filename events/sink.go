// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
)

var _ clientevents.EventSink = (*ClientSink)(nil)

// ClientSink stores Events through a client, as core/v1: its endpoint holds the same objects as
// events.k8s.io/v1 and lets a writer update count, firstTimestamp, lastTimestamp and source.
// kubectl describe and other readers sort by lastTimestamp alone. Each call is a single request: a
// REST client's own retries after a 429 would hide the 429 from the recorder, and the recorder
// could not hold back.
type ClientSink struct {
	client typedcorev1.EventsGetter
}

// NewClientSink returns a sink over the client. The client's rate limits apply.
func NewClientSink(client kubernetes.Interface) *ClientSink {
	if rc, ok := client.CoreV1().RESTClient().(*rest.RESTClient); ok && rc != nil { // a fake clientset has none
		return &ClientSink{typedcorev1.New(single{rc})}
	}
	return &ClientSink{client.CoreV1()}
}

// single is a REST client that makes each call once.
type single struct{ rest.Interface }

func (s single) Post() *rest.Request { return s.Interface.Post().MaxRetries(0) }

func (s single) Put() *rest.Request { return s.Interface.Put().MaxRetries(0) }

func (s single) Patch(t types.PatchType) *rest.Request { return s.Interface.Patch(t).MaxRetries(0) }

// Create stores a new event.
func (s *ClientSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	out, err := s.client.Events(e.Namespace).Create(ctx, coreEvent(e), metav1.CreateOptions{})
	return seriesEvent(out), err
}

// Update replaces an event. The recorder never calls Update.
func (s *ClientSink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	out, err := s.client.Events(e.Namespace).Update(ctx, coreEvent(e), metav1.UpdateOptions{})
	return seriesEvent(out), err
}

// Patch applies a strategic merge patch to the named event. A patch of the series also sets the
// corresponding core/v1 fields.
func (s *ClientSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	var patch struct {
		Metadata json.RawMessage       `json:"metadata,omitempty"`
		Series   *eventsv1.EventSeries `json:"series,omitempty"`
		Count    int32                 `json:"count,omitempty"`
		Last     *metav1.Time          `json:"lastTimestamp,omitempty"`
	}
	if err := json.Unmarshal(data, &patch); err == nil && patch.Series != nil {
		patch.Count, patch.Last = patch.Series.Count, &metav1.Time{Time: patch.Series.LastObservedTime.Time}
		if data, err = json.Marshal(patch); err != nil {
			return nil, err
		}
	}
	out, err := s.client.Events(e.Namespace).Patch(ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	return seriesEvent(out), err
}

// coreEvent is the core/v1 form of an event.
func coreEvent(e *eventsv1.Event) *corev1.Event {
	c := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Related: e.Related, Reason: e.Reason, Message: e.Note, Type: e.Type,
		Action: e.Action, Source: corev1.EventSource{Component: e.ReportingController, Host: e.ReportingInstance},
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		EventTime: e.EventTime, FirstTimestamp: metav1.NewTime(e.EventTime.Time), LastTimestamp: metav1.NewTime(e.EventTime.Time), Count: 1,
	}
	if e.Series != nil {
		c.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
		c.Count, c.LastTimestamp = e.Series.Count, metav1.NewTime(e.Series.LastObservedTime.Time)
	}
	return c
}

// seriesEvent is the events.k8s.io/v1 form of a core/v1 event, nil for nil.
func seriesEvent(c *corev1.Event) *eventsv1.Event {
	if c == nil {
		return nil
	}
	e := &eventsv1.Event{
		ObjectMeta: c.ObjectMeta, Regarding: c.InvolvedObject, Related: c.Related, Reason: c.Reason, Note: c.Message, Type: c.Type,
		Action: c.Action, EventTime: c.EventTime, ReportingController: c.ReportingController, ReportingInstance: c.ReportingInstance,
	}
	if c.Series != nil {
		e.Series = &eventsv1.EventSeries{Count: c.Series.Count, LastObservedTime: c.Series.LastObservedTime}
	}
	return e
}

// NewForClient is New with a sink over the client, unless opts has a Sink.
func NewForClient(client kubernetes.Interface, opts Options) (*Broadcaster, error) {
	if client == nil {
		return nil, errors.New("events: the client is nil")
	}
	if opts.Sink == nil {
		opts.Sink = NewClientSink(client)
	}
	return New(opts)
}
