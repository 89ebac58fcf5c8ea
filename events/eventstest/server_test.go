// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"context"
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

func TestFaultsAndBooks(t *testing.T) {
	s := NewServer()
	k, ctx := s.Sink(), t.Context()
	boom := apierrors.NewInternalError(context.Canceled)
	s.SetFault(func(context.Context, Call) error { return boom })
	if _, err := k.Create(ctx, valid("a")); err != boom {
		t.Errorf("the fault gave %v", err)
	}
	s.SetFault(nil)
	s.SetAfterFault(func(Call) error { return boom })
	if _, err := k.Create(ctx, valid("a")); err != boom {
		t.Errorf("the lost answer gave %v", err)
	}
	s.SetAfterFault(nil)
	if _, err := k.Create(ctx, valid("a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("it was not carried out: %v", err)
	}
	if all, failed := s.Count(); all != 3 || failed != 3 || len(s.Calls()) != 3 {
		t.Errorf("%d calls, %d failed: %v", all, failed, s.Calls())
	}
}
