// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// Ten thousand occurrences within ten seconds cost three calls, and the count is exact.
func Example() {
	server := eventstest.NewServer() // stands in for events.NewClientSink(client)
	broadcaster, err := events.New(events.Options{Sink: server.Sink(), Instance: "node-1", NoRoster: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "example.com/agent")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		fmt.Println(err)
		return
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1234"}}
	for i := range 10_000 {
		recorder.Eventf(pod, nil, corev1.EventTypeWarning, "BackOff", "Restarting", "attempt %d failed", i)
	}
	if err := broadcaster.ShutdownWithContext(ctx); err != nil {
		fmt.Println(err)
	}

	e := server.Events()[0]
	calls, _ := server.Count()
	fmt.Println(e.Note, "×", e.Series.Count, e.Annotations[events.AnnotationState])
	fmt.Println("fewer than a hundred calls:", calls < 100) // three, but on a machine that stands still
	// Output:
	// attempt 0 failed × 10000 Unknown
	// fewer than a hundred calls: true
}

// A kubelet's Dependencies.Recorder has client-go's older interface.
func ExampleBroadcaster_NewLegacyRecorder() {
	server := eventstest.NewServer()
	broadcaster, err := events.New(events.Options{Sink: server.Sink()})
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder := broadcaster.NewLegacyRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: "node-1"})
	stop := make(chan struct{})
	defer close(stop)
	broadcaster.StartRecordingToSink(stop)

	recorder.Event(&corev1.ObjectReference{Kind: "Node", Name: "node-1"}, corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	if err := broadcaster.ShutdownWithContext(context.Background()); err != nil {
		fmt.Println(err)
	}

	e := server.Events()[0]
	fmt.Println(e.Namespace, e.Reason, e.Action, e.ReportingController, e.ReportingInstance)
	// Output: kube-system Starting Starting kubelet node-1
}

// A watcher sees every emitted event, recorded or not.
func ExampleBroadcaster_StartEventWatcher() {
	broadcaster, err := events.New(events.Options{Sink: eventstest.NewServer().Sink()})
	if err != nil {
		fmt.Println(err)
		return
	}
	seen := make(chan runtime.Object, 1)
	stop, err := broadcaster.StartEventWatcher(func(e runtime.Object) { seen <- e.DeepCopyObject() })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	broadcaster.NewRecorder(scheme.Scheme, "example.com/agent").
		Eventf(&corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}, nil, corev1.EventTypeNormal, "Started", "Start", "it runs")
	fmt.Printf("%T\n", <-seen)
	// Output: *v1.Event
}
