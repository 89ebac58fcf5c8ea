// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// newManager is the page of docs/events, word for word.
func newManager(config *rest.Config, options ctrl.Options) (ctrl.Manager, *events.Broadcaster, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	// doc: manager
	broadcaster, err := events.NewForClient(client, events.Options{})
	if err != nil {
		return nil, nil, err
	}
	options.EventBroadcaster = broadcaster.Record()
	manager, err := ctrl.NewManager(config, options)
	// doc: end
	return manager, broadcaster, err
}

// TestManagerRecordsSeries: events of controllers by a manager's recorder are a single series, with
// its count, and nothing goes by client-go's older recorder.
func TestManagerRecordsSeries(t *testing.T) {
	api := eventstest.NewServer()
	h := httptest.NewServer(api)
	defer h.Close()
	manager, broadcaster, err := newManager(&rest.Config{Host: h.URL, QPS: -1}, ctrl.Options{
		Scheme:         scheme.Scheme,
		Metrics:        server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
	recorder := manager.GetEventRecorderFor("web-controller")
	for i := range 1000 {
		recorder.Eventf(pod, corev1.EventTypeWarning, "Failed", "cannot reconcile %s", "web")
		if i == 500 {
			recorder.Event(pod, corev1.EventTypeWarning, "Failed", "another message")
		}
	}
	want := []string{
		"web-controller Failed cannot reconcile web ×1000",
		"web-controller Failed another message ×1",
	}
	want = append(want, newer(t, manager, broadcaster, pod)...)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	<-manager.Elected()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// The manager leaves a given broadcaster running; its creator shuts it down, last of all.
	if err := broadcaster.ShutdownWithContext(t.Context()); err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range api.Events() {
		if e.Annotations[events.AnnotationRoster] == "" {
			count := int32(1)
			if e.Series != nil {
				count = e.Series.Count
			}
			got = append(got, fmt.Sprintf("%s %s %s ×%d", e.ReportingController, e.Reason, e.Note, count))
		}
	}
	slices.Sort(got) // what is about one pod comes in order, and series begin anew in any
	slices.Sort(want)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("stored:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, e := range api.Events() {
		if e.EventTime.IsZero() {
			t.Errorf("%s is of client-go's older recorder", e.Name)
		}
	}
}
