// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// A recorder's test gives the recorder the server's Sink, has calls fail, and looks at what is
// stored.
func Example() {
	server := eventstest.NewServer()
	sink := server.Sink()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: "shop", Name: "web.1"},
		EventTime:           metav1.NowMicro(),
		Regarding:           corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"},
		Type:                corev1.EventTypeWarning,
		Reason:              "BackOff",
		Action:              "Restarting",
		ReportingController: "example.com/agent",
		ReportingInstance:   "node-1",
	}
	ctx := context.Background()

	server.SetFault(func(context.Context, eventstest.Call) error { return apierrors.NewTooManyRequests("busy", 1) })
	_, err := sink.Create(ctx, event)
	fmt.Println(err)

	server.SetFault(nil)
	_, err = sink.Create(ctx, event)
	fmt.Println(err)
	_, err = sink.Create(ctx, event)
	fmt.Println(apierrors.IsAlreadyExists(err))
	all, failed := server.Count()
	fmt.Println(len(server.Events()), "stored,", all, "calls,", failed, "failed")
	// Output:
	// busy
	// <nil>
	// true
	// 1 stored, 3 calls, 2 failed
}
