// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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

// TestAfterFaultMayAsk: a fault may use the server, and its error is the whole answer.
func TestAfterFaultMayAsk(t *testing.T) {
	s := NewServer()
	s.SetAfterFault(func(Call) error { return fmt.Errorf("%d are stored", len(s.Events())) })
	stored, err := s.Sink().Create(t.Context(), valid("a")) // for ever, if the server is held up
	if stored != nil {
		t.Errorf("the lost answer is %v", stored)
	}
	if err == nil || err.Error() != "1 are stored" {
		t.Error(err)
	}
}

// TestLateError: a call that the client gave up is carried out at its time, by the rules of then.
func TestLateError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		sink := s.Sink()
		reset := errors.New("reset")
		stored := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := len(s.Events()); n != want {
				t.Errorf("%d events are stored, want %d", n, want)
			}
		}
		s.SetFault(func(context.Context, Call) error {
			return fmt.Errorf("post: %w", &LateError{After: time.Minute, Err: reset})
		})
		for _, name := range []string{"a", "b"} {
			answer, err := sink.Create(t.Context(), valid(name))
			if answer != nil || err != reset {
				t.Errorf("answered %v, %v", answer, err)
			}
		}
		s.SetFault(nil)
		time.Sleep(time.Minute - time.Second)
		stored(0)
		created, err := sink.Create(t.Context(), valid("a"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stored(2)
		if v := s.Events()[0].ResourceVersion; v != created.ResourceVersion {
			t.Errorf("version %s, want %s: the late one has replaced it", v, created.ResourceVersion)
		}
		if all, failed := s.Count(); all != 3 || failed != 2 {
			t.Errorf("%d calls, of which %d failed", all, failed)
		}
	})
}

// TestReadsAreRefused: the transport answers requests without a body, and closes the others'.
func TestReadsAreRefused(t *testing.T) {
	const url = "http://x/apis/events.k8s.io/v1/namespaces/ns/events/a"
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := NewServer().Transport().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, answer.Status)
		}
	}
	body := &closed{Reader: strings.NewReader("{}")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewServer().Transport().RoundTrip(r); err != nil || !body.closed {
		t.Errorf("error %v, body closed: %v", err, body.closed)
	}
}

type closed struct {
	io.Reader
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}
