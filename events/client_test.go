// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// overHTTP is a real client of a server.
func overHTTP(t *testing.T, server *eventstest.Server) kubernetes.Interface {
	t.Helper()
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: h.URL, QPS: -1}, h.Client())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// recordAll emits n occurrences over a client and shuts down.
func recordAll(t *testing.T, client kubernetes.Interface, n int, o Options) *Broadcaster {
	t.Helper()
	o.Instance = "node-1"
	b, err := NewForClient(client, o)
	if err != nil {
		t.Fatal(err)
	}
	r := b.NewRecorder(scheme.Scheme, controller)
	b.StartRecordingToSink(t.Context().Done())
	for range n {
		r.Eventf(testPod("a"), nil, corev1.EventTypeWarning, "R", "A", "note")
	}
	if err := b.ShutdownWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOverHTTP(t *testing.T) {
	server := eventstest.NewServer()
	client := overHTTP(t, server)
	for range 3 { // two restarts
		recordAll(t, client, 500, Options{})
	}
	all := about(server.Events(), "a")
	if len(all) != 1 || told(&all[0]) != "Unknown ×1500" {
		t.Errorf("stored: %s", brief(all))
	}
}

// TestClientDoesNotRetryByItself: the recorder must see each 429, or it could not hold back.
func TestClientDoesNotRetryByItself(t *testing.T) {
	server := eventstest.NewServer()
	server.SetFault(during(time.Hour, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 3)))
	client := overHTTP(t, server)
	sink := NewClientSink(client)
	event := &eventsv1.Event{}
	event.Name, event.Namespace = "e", "ns"
	for name, call := range map[string]func() error{
		"create": func() error { _, err := sink.Create(t.Context(), event); return err },
		"update": func() error { _, err := sink.Update(t.Context(), event); return err },
		"patch":  func() error { _, err := sink.Patch(t.Context(), event, []byte("{}")); return err },
	} {
		before, _ := server.Count()
		err := call()
		after, _ := server.Count()
		if v := judge(t.Context(), err); v.verdict != verdictTrouble || v.reason != "TooManyRequests" || v.after != 3*time.Second {
			t.Errorf("%s: judged %+v: %v", name, v, err)
		}
		if after-before != 1 {
			t.Errorf("%s: %d requests", name, after-before)
		}
	}
}
