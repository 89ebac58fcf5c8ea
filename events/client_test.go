// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// clientOf is a real client of a server, which ends with the test.
func clientOf(t *testing.T, h *httptest.Server) kubernetes.Interface {
	t.Helper()
	t.Cleanup(h.Close)
	return must(kubernetes.NewForConfigAndClient(&rest.Config{Host: h.URL, QPS: -1}, h.Client()))(t)
}

// recordAll emits n occurrences over a client and shuts down.
func recordAll(t *testing.T, client kubernetes.Interface, n int, o Options) {
	t.Helper()
	o.Instance = "node-1"
	b := must(NewForClient(client, o))(t)
	r := b.NewRecorder(scheme.Scheme, controller)
	b.StartRecordingToSink(t.Context().Done())
	for range n {
		r.Eventf(testPod("a"), nil, corev1.EventTypeWarning, "R", "A", "note")
	}
	noError(t, b.ShutdownWithContext(t.Context()))
}

func TestOverHTTP(t *testing.T) {
	server := eventstest.NewServer()
	client := clientOf(t, httptest.NewServer(server))
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
	client := clientOf(t, httptest.NewServer(server))
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

// TestClientFillsTheFieldsOfCore: readers of core/v1 only, such as kubectl describe, sort by
// lastTimestamp.
func TestClientFillsTheFieldsOfCore(t *testing.T) {
	server := eventstest.NewServer()
	recordAll(t, clientOf(t, httptest.NewServer(server)), 1, Options{NoRoster: true})
	e := server.Events()[0]
	if e.DeprecatedCount != 1 || e.DeprecatedFirstTimestamp.Unix() != e.EventTime.Unix() || e.DeprecatedLastTimestamp.Unix() != e.EventTime.Unix() {
		t.Errorf("of one occurrence: %v, %v, %v", e.DeprecatedCount, e.DeprecatedFirstTimestamp, e.DeprecatedLastTimestamp)
	}
	server = eventstest.NewServer()
	recordAll(t, clientOf(t, httptest.NewServer(server)), 500, Options{NoRoster: true})
	e = server.Events()[0]
	switch {
	case e.DeprecatedCount != 500 || e.Series.Count != 500:
		t.Errorf("the counts are %d and %d", e.DeprecatedCount, e.Series.Count)
	case e.DeprecatedFirstTimestamp.Unix() != e.EventTime.Unix() || e.DeprecatedLastTimestamp.Unix() != e.Series.LastObservedTime.Unix():
		t.Errorf("the times are %v, %v of %v, %v", e.DeprecatedFirstTimestamp, e.DeprecatedLastTimestamp, e.EventTime, e.Series.LastObservedTime)
	case e.DeprecatedSource != corev1.EventSource{Component: controller, Host: "node-1"}:
		t.Errorf("the source is %v", e.DeprecatedSource)
	}
}

// overTLS is a client of a real TLS server with the given protocol, and with a fault for objects
// named "poison".
func overTLS(t *testing.T, server *eventstest.Server, http2 bool, fault http.HandlerFunc) kubernetes.Interface {
	t.Helper()
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if http2 != (r.ProtoMajor == 2) {
			t.Errorf("the protocol is %s", r.Proto)
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		if strings.Contains(r.URL.Path, "poison") || strings.Contains(string(body), "poison") {
			fault(w, r)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		server.ServeHTTP(w, r)
	}))
	h.EnableHTTP2 = http2
	h.StartTLS()
	return clientOf(t, h)
}

// TestPoisonOverTLS: the server breaks off at a single event, over HTTP/2 like a kube-apiserver and
// over HTTP/1.1. No other event is delayed.
func TestPoisonOverTLS(t *testing.T) {
	for name, fault := range map[string]http.HandlerFunc{
		"aborted": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half a body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"kind":"Event"`)
			panic(http.ErrAbortHandler)
		},
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "garbage")
		},
	} {
		for _, http2 := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, http2), func(t *testing.T) {
				server := eventstest.NewServer()
				b, err := NewForClient(overTLS(t, server, http2, fault), Options{
					Instance: "node-1", NoRoster: true, Writers: 1, BackoffBase: 10 * time.Millisecond, BackoffMax: 100 * time.Millisecond,
				})
				noError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := b.NewSeriesRecorder(nil, controller)
				r.Eventf(podRef("poison"), nil, "Normal", "R", "A", "")
				for i := range 100 {
					r.Eventf(podRef(fmt.Sprint("p", i)), nil, "Normal", "R", "A", "")
				}
				noError(t, b.StartRecordingToSinkWithContext(ctx))
				for end := time.Now().Add(time.Minute); len(server.Events()) < 100 && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				if n := len(server.Events()); n != 100 {
					t.Errorf("%d of 100 others are stored: %+v", n, b.Stats())
				}
				brief, done := context.WithTimeout(ctx, 50*time.Millisecond)
				defer done()
				_ = b.ShutdownWithContext(brief)
			})
		}
	}
}

// TestFakeClientset: on a fake clientset, a swapped recorder's events are where client-go's would
// be, and nothing else is. This is what client-go's own test of a series on a fake clientset does.
func TestFakeClientset(t *testing.T) {
	client := NewFakeClientset()
	b := must(NewForClient(client, Options{}))(t)
	adapter := b.Adapter()
	stop := make(chan struct{})
	defer close(stop)
	adapter.StartRecordingToSink(stop)
	r := adapter.NewRecorder("test")
	for range 2 {
		r.Eventf(&corev1.ObjectReference{}, nil, corev1.EventTypeNormal, "reason", "action", "")
	}
	adapter.Shutdown()
	newer := must(client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{}))(t)
	older := must(client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{}))(t)
	if len(newer.Items) != 1 || len(older.Items) != 0 {
		t.Fatalf("%d events in events.k8s.io/v1, %d in core/v1", len(newer.Items), len(older.Items))
	}
	e := newer.Items[0]
	if e.Namespace != metav1.NamespaceDefault || e.Series == nil || e.Series.Count != 2 {
		t.Errorf("stored: %+v", e)
	}
}
