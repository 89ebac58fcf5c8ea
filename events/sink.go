// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"net/http"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
)

var _ clientevents.EventSink = (*ClientSink)(nil)

var errNoNamespace = errors.New("events: an event without a namespace cannot be stored")

// ClientSink stores events.k8s.io/v1 Events through a client. Each call is one request: the retries
// that a REST client makes by itself for a 429 would hide it from the recorder, which then could
// not hold back.
type ClientSink struct {
	client kubernetes.Interface
}

// NewClientSink returns a sink over the client, whose rate limits apply.
func NewClientSink(client kubernetes.Interface) *ClientSink { return &ClientSink{client} }

// Create stores a new event.
func (s *ClientSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.call(ctx, http.MethodPost, e, e)
}

// Update replaces an event. The recorder does not use it.
func (s *ClientSink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.call(ctx, http.MethodPut, e, e)
}

// Patch applies a strategic merge patch to the event of that name.
func (s *ClientSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.call(ctx, http.MethodPatch, e, data)
}

// call makes one request with a body of bytes or of the event.
func (s *ClientSink) call(ctx context.Context, verb string, e *eventsv1.Event, body any) (*eventsv1.Event, error) {
	if e.Namespace == "" {
		return nil, errNoNamespace
	}
	client := s.client.EventsV1()
	c := client.RESTClient()
	if rc, ok := c.(*rest.RESTClient); c == nil || ok && rc == nil { // a fake clientset has none
		switch typed := client.Events(e.Namespace); verb {
		case http.MethodPost:
			return typed.Create(ctx, e, metav1.CreateOptions{})
		case http.MethodPut:
			return typed.Update(ctx, e, metav1.UpdateOptions{})
		default:
			return typed.Patch(ctx, e.Name, types.StrategicMergePatchType, body.([]byte), metav1.PatchOptions{})
		}
	}
	r := c.Verb(verb).MaxRetries(0).Namespace(e.Namespace).Resource("events")
	if verb != http.MethodPost {
		r.Name(e.Name)
	}
	if verb == http.MethodPatch {
		r.SetHeader("Content-Type", string(types.StrategicMergePatchType))
	}
	out := &eventsv1.Event{}
	err := r.Body(body).Do(ctx).Into(out)
	return out, err
}

// NewForClient is New with everything that a client can give: the sink, and, where list is true,
// the reconstruction of series by a list, for roles that may. Fields of opts that are set stay.
func NewForClient(client kubernetes.Interface, list bool, opts Options) (*Broadcaster, error) {
	if client == nil {
		return nil, errors.New("events: the client is nil")
	}
	if opts.Sink == nil {
		opts.Sink = NewClientSink(client)
	}
	if opts.List == nil && list {
		opts.List = ListClient(client)
	}
	return New(opts)
}

// ListClient lists the events of a controller in all namespaces, 500 at a time.
func ListClient(client kubernetes.Interface) ListFunc {
	return func(ctx context.Context, controller, token string) ([]eventsv1.Event, string, error) {
		l, err := client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("reportingController", controller).String(),
			Limit:         500,
			Continue:      token,
		})
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.Continue, nil
	}
}
