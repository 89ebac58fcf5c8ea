// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
)

var (
	_ clientevents.EventSink = (*ClientSink)(nil)
	_ LegacySink             = (*ClientLegacySink)(nil)
)

var errNoNamespace = errors.New("events: an event without a namespace cannot be stored")

// restClient is the REST client behind a typed client, nil for a fake one.
func restClient(c rest.Interface) rest.Interface {
	if rc, ok := c.(*rest.RESTClient); ok && rc == nil {
		return nil
	}
	return c
}

// ClientSink stores events.k8s.io/v1 Events through a client. Each call is one request: the retries that a REST client makes by itself for a 429
// would hide it from the recorder, which then could not hold back.
type ClientSink struct {
	client kubernetes.Interface
}

// NewClientSink returns a sink over the client, whose rate limits apply.
func NewClientSink(client kubernetes.Interface) *ClientSink { return &ClientSink{client} }

// Create stores a new event.
func (s *ClientSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	if e.Namespace == "" {
		return nil, errNoNamespace
	}
	c := restClient(s.client.EventsV1().RESTClient())
	if c == nil {
		return s.client.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	}
	out := &eventsv1.Event{}
	err := c.Post().MaxRetries(0).Namespace(e.Namespace).Resource("events").VersionedParams(&metav1.CreateOptions{}, scheme.ParameterCodec).Body(e).Do(ctx).Into(out)
	return out, err
}

// Update replaces an event. The recorder does not use it.
func (s *ClientSink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	if e.Namespace == "" {
		return nil, errNoNamespace
	}
	c := restClient(s.client.EventsV1().RESTClient())
	if c == nil {
		return s.client.EventsV1().Events(e.Namespace).Update(ctx, e, metav1.UpdateOptions{})
	}
	out := &eventsv1.Event{}
	err := c.Put().MaxRetries(0).Namespace(e.Namespace).Resource("events").Name(e.Name).VersionedParams(&metav1.UpdateOptions{}, scheme.ParameterCodec).Body(e).Do(ctx).Into(out)
	return out, err
}

// Patch applies a strategic merge patch to the event of that name.
func (s *ClientSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	if e.Namespace == "" {
		return nil, errNoNamespace
	}
	c := restClient(s.client.EventsV1().RESTClient())
	if c == nil {
		return s.client.EventsV1().Events(e.Namespace).Patch(ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	}
	out := &eventsv1.Event{}
	err := c.Patch(types.StrategicMergePatchType).MaxRetries(0).Namespace(e.Namespace).Resource("events").Name(e.Name).
		VersionedParams(&metav1.PatchOptions{}, scheme.ParameterCodec).Body(data).Do(ctx).Into(out)
	return out, err
}

// ClientLegacySink stores core/v1 Events through a client, one request a call.
type ClientLegacySink struct {
	client kubernetes.Interface
}

// NewClientLegacySink returns a sink over the client, whose rate limits apply.
func NewClientLegacySink(client kubernetes.Interface) *ClientLegacySink {
	return &ClientLegacySink{client}
}

// Create stores a new event.
func (s *ClientLegacySink) Create(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	if e.Namespace == "" {
		return nil, errNoNamespace
	}
	c := restClient(s.client.CoreV1().RESTClient())
	if c == nil {
		return s.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	}
	out := &corev1.Event{}
	err := c.Post().MaxRetries(0).Namespace(e.Namespace).Resource("events").VersionedParams(&metav1.CreateOptions{}, scheme.ParameterCodec).Body(e).Do(ctx).Into(out)
	return out, err
}

// Patch applies a strategic merge patch to the event of that name.
func (s *ClientLegacySink) Patch(ctx context.Context, e *corev1.Event, data []byte) (*corev1.Event, error) {
	if e.Namespace == "" {
		return nil, errNoNamespace
	}
	c := restClient(s.client.CoreV1().RESTClient())
	if c == nil {
		return s.client.CoreV1().Events(e.Namespace).Patch(ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	}
	out := &corev1.Event{}
	err := c.Patch(types.StrategicMergePatchType).MaxRetries(0).Namespace(e.Namespace).Resource("events").Name(e.Name).
		VersionedParams(&metav1.PatchOptions{}, scheme.ParameterCodec).Body(data).Do(ctx).Into(out)
	return out, err
}

// NewForClient is New with everything that a client can give: the sink, the fallback to core/v1 with its probe, and, where list is
// true, the reconstruction of series by a list, for roles that may. Fields of opts that are set stay.
func NewForClient(client kubernetes.Interface, list bool, opts Options) (*Broadcaster, error) {
	if client == nil {
		return nil, errors.New("events: the client is nil")
	}
	if opts.Sink == nil {
		opts.Sink = NewClientSink(client)
	}
	if opts.Legacy == nil {
		opts.Legacy = NewClientLegacySink(client)
	}
	if opts.Probe == nil {
		opts.Probe = ProbeClient(client)
	}
	if opts.List == nil && list {
		opts.List = ListClient(client)
	}
	return New(opts)
}

// ProbeClient asks the discovery of a server whether it serves events.k8s.io/v1. A server that says so, or says that it does not, is one
// thing; one that cannot be asked is another: that is an error.
func ProbeClient(client kubernetes.Interface) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		path := "/apis/" + eventsv1.SchemeGroupVersion.String()
		var err error
		if c := restClient(client.Discovery().RESTClient()); c != nil {
			err = c.Get().MaxRetries(0).AbsPath(path).Do(ctx).Error()
		} else {
			_, err = client.Discovery().ServerResourcesForGroupVersion(eventsv1.SchemeGroupVersion.String())
		}
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsNotFound(err):
			return false, nil
		}
		return false, err
	}
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
