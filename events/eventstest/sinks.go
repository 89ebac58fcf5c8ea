// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
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
		out, err = k.s.create(e, false)
		return err
	})
	return out, err
}

// Update replaces or creates an event.
func (k *Sink) Update(ctx context.Context, e *eventsv1.Event) (out *eventsv1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: Update, Namespace: e.Namespace, Name: e.Name}, func() error {
		out, err = k.s.update(e, false)
		return err
	})
	return out, err
}

// Patch applies a strategic merge patch.
func (k *Sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (out *eventsv1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: Patch, Namespace: e.Namespace, Name: e.Name, Body: string(data)}, func() error {
		out, err = k.s.patch(e.Namespace, e.Name, data, false)
		return err
	})
	return out, err
}

// Create stores a new event.
func (k *LegacySink) Create(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return k.serve(ctx, Create, e, "", func() (*eventsv1.Event, error) { return k.s.create(fromCore(e), true) })
}

// Update replaces or creates an event.
func (k *LegacySink) Update(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return k.serve(ctx, Update, e, "", func() (*eventsv1.Event, error) { return k.s.update(fromCore(e), true) })
}

// Patch applies a strategic merge patch.
func (k *LegacySink) Patch(ctx context.Context, e *corev1.Event, data []byte) (*corev1.Event, error) {
	return k.serve(ctx, Patch, e, string(data), func() (*eventsv1.Event, error) { return k.s.patch(e.Namespace, e.Name, data, true) })
}

func (k *LegacySink) serve(ctx context.Context, verb Verb, e *corev1.Event, body string, do func() (*eventsv1.Event, error)) (out *corev1.Event, err error) {
	err = k.s.serve(ctx, Call{Verb: verb, Namespace: e.Namespace, Name: e.Name, Body: body}, func() error {
		stored, err := do()
		if err == nil {
			out = CoreEvent(stored)
		}
		return err
	})
	return out, err
}
