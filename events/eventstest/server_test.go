// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func valid(name string) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, EventTime: metav1.NewMicroTime(time.Now()),
		ReportingController: "c", ReportingInstance: "i", Action: "A", Reason: "R", Type: "Normal",
	}
	e.Regarding.Namespace = "ns"
	return e
}

// TestLife: only a write with a change prolongs the life of an event.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		s.SetTTL(time.Minute)
		k, e := s.Sink(), valid("a")
		create := func() error { _, err := k.Create(t.Context(), e); return err }
		patch := func(data string) error { _, err := k.Patch(t.Context(), e, []byte(data)); return err }
		created := create()
		time.Sleep(40 * time.Second)
		patched := patch("{}")
		time.Sleep(20 * time.Second)
		if err := patch("{}"); created != nil || patched != nil || !apierrors.IsNotFound(err) {
			t.Fatalf("created: %v, patched: %v, after its minute: %v", created, patched, err)
		}
		created = create()
		time.Sleep(40 * time.Second)
		if patched = patch(`{"metadata":{"labels":{"a":"b"}}}`); created != nil || patched != nil {
			t.Fatalf("created: %v, patched: %v", created, patched)
		}
		time.Sleep(40 * time.Second)
		if n := len(s.Events()); n != 1 {
			t.Errorf("%d events after a write", n)
		}
	})
}
