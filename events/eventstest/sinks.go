// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Sink is a side of the server: one of the two APIs, with its form of an event. That of
// events.k8s.io/v1 is an events.EventSink.
type Sink[E eventsv1.Event | corev1.Event] struct {
	s    *Server
	core bool
	in   func(*E) *eventsv1.Event // a copy
	out  func(*eventsv1.Event) *E
}

// Sink returns the events.k8s.io/v1 side of the server.
func (s *Server) Sink() *Sink[eventsv1.Event] {
	return &Sink[eventsv1.Event]{s, false, (*eventsv1.Event).DeepCopy, (*eventsv1.Event).DeepCopy}
}

// LegacySink returns the core/v1 side of the server.
func (s *Server) LegacySink() *Sink[corev1.Event] {
	return &Sink[corev1.Event]{s, true, fromCore, CoreEvent}
}

// Create stores a new event.
func (k *Sink[E]) Create(ctx context.Context, e *E) (*E, error) { return k.call(ctx, Create, e, nil) }

// Update replaces or creates an event.
func (k *Sink[E]) Update(ctx context.Context, e *E) (*E, error) { return k.call(ctx, Update, e, nil) }

// Patch applies a strategic merge patch.
func (k *Sink[E]) Patch(ctx context.Context, e *E, data []byte) (*E, error) {
	return k.call(ctx, Patch, e, data)
}

func (k *Sink[E]) call(ctx context.Context, verb Verb, in *E, patch []byte) (*E, error) {
	e := k.in(in)
	c := Call{
		Verb:      verb,
		Namespace: e.Namespace,
		Name:      e.Name,
		Body:      string(patch),
	}
	if !k.core {
		c.Group = eventsResource.Group
	}
	var answer *E
	err := k.s.serve(ctx, c, func() error { // perhaps later
		stored, err := k.carryOut(verb, e, patch)
		if err == nil {
			answer = k.out(stored)
		}
		return err
	})
	if err != nil {
		return nil, err // and no answer, which may be lost, or still to come
	}
	return answer, nil
}

func (k *Sink[E]) carryOut(verb Verb, e *eventsv1.Event, patch []byte) (*eventsv1.Event, error) {
	old := k.s.find(keyOf(e))
	switch {
	case verb == Patch && old == nil:
		return nil, apierrors.NewNotFound(eventsResource, e.Name)
	case verb == Patch:
		return k.patch(old, patch)
	case verb == Create || old == nil:
		return k.s.create(e, k.core)
	}
	return k.s.replace(old, e, k.core)
}

// patch applies a strategic merge patch to the event's form in this API.
func (k *Sink[E]) patch(old *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	before, err := json.Marshal(k.out(old))
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, data, *new(E))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	changed := new(E)
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if same, err := json.Marshal(changed); err == nil && string(before) == string(same) {
		return old, nil // nothing changed: no write, and no longer life
	}
	return k.s.replace(old, k.in(changed), k.core)
}
