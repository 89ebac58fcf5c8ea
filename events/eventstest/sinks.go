// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Sink is the server as an events.EventSink.
type Sink struct{ s *Server }

// LegacySink is the server's core/v1 side.
type LegacySink struct{ s *Server }

// Sink returns the events.k8s.io/v1 side of the server.
func (s *Server) Sink() *Sink { return &Sink{s} }

// LegacySink returns the core/v1 side of the server.
func (s *Server) LegacySink() *LegacySink { return &LegacySink{s} }

// Create stores a new event.
func (k *Sink) Create(ctx context.Context, e *eventsv1.Event) (out *eventsv1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: Create, Namespace: e.Namespace, Name: e.Name}, func() error {
		out, err = k.s.create(e)
		return err
	})
	return out, err
}

// Update replaces an event, or creates it.
func (k *Sink) Update(ctx context.Context, e *eventsv1.Event) (out *eventsv1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: Update, Namespace: e.Namespace, Name: e.Name}, func() error {
		out, err = k.s.update(e)
		return err
	})
	return out, err
}

// Patch applies a strategic merge patch.
func (k *Sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (out *eventsv1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: Patch, Namespace: e.Namespace, Name: e.Name, Body: string(data)}, func() error {
		out, err = k.s.patch(e.Namespace, e.Name, data)
		return err
	})
	return out, err
}

// Probe reports whether the server knows events.k8s.io/v1.
func (s *Server) Probe(ctx context.Context) (served bool, err error) {
	err = s.serve(ctx, Call{Verb: Probe}, func() error { return nil })
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// List returns the events of a controller in one page.
func (s *Server) List(ctx context.Context, controller, _ string) (out []eventsv1.Event, next string, err error) {
	err = s.serve(ctx, Call{Verb: List}, func() error { return nil })
	if err != nil {
		return nil, "", err
	}
	for _, e := range s.Events() {
		if e.ReportingController == controller {
			out = append(out, e)
		}
	}
	return out, "", nil
}

// Create stores a new event.
func (k *LegacySink) Create(ctx context.Context, e *corev1.Event) (out *corev1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: Create, Core: true, Namespace: e.Namespace, Name: e.Name}, func() error {
		out, err = k.s.createCore(e)
		return err
	})
	return out, err
}

// Patch applies a strategic merge patch.
func (k *LegacySink) Patch(ctx context.Context, e *corev1.Event, data []byte) (out *corev1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: Patch, Core: true, Namespace: e.Namespace, Name: e.Name, Body: string(data)}, func() error {
		out, err = k.s.patchCore(e.Namespace, e.Name, data)
		return err
	})
	return out, err
}
