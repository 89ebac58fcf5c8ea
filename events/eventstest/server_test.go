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
		k, ctx := s.Sink(), t.Context()
		e := valid("a")
		if _, err := k.Create(ctx, e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if _, err := k.Patch(ctx, e, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if _, err := k.Patch(ctx, e, []byte("{}")); !apierrors.IsNotFound(err) {
			t.Fatalf("after its minute: %v", err)
		}
		if _, err := k.Create(ctx, e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if _, err := k.Patch(ctx, e, []byte("{\"metadata\":{\"labels\":{\"a\":\"b\"}}}")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if n := len(s.Events()); n != 1 {
			t.Errorf("%d events after a write", n)
		}
	})
}
