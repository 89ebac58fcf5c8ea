// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/events"
)

// kubeletDependencies is the relevant part of a kubelet's Dependencies.
type kubeletDependencies struct {
	Recorder record.EventRecorderLogger
}

// runKubelet is docs/events/kubelet.md.
func runKubelet(ctx context.Context, eventClient kubernetes.Interface, nodeName string, kubeDeps *kubeletDependencies, run func() error) error {
	broadcaster, err := events.NewForClient(eventClient, events.Options{Instance: nodeName})
	if err != nil {
		return err
	}
	kubeDeps.Recorder = broadcaster.NewLegacyRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: nodeName})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	defer broadcaster.Shutdown()
	return run()
}

// runController is docs/events/controller.md.
func runController(ctx context.Context, client kubernetes.Interface, run func(clientevents.EventRecorderLogger) error) error {
	broadcaster, err := events.NewForClient(client, events.Options{})
	if err != nil {
		return err
	}
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, "example.com/controller")
	return run(recorder)
}

// schedulerConfig is the part of kube-scheduler's configuration that matters here.
type schedulerConfig struct {
	//lint:ignore SA1019 kube-scheduler still takes this type, so the page shows it
	EventBroadcaster clientevents.EventBroadcasterAdapter
}

// newScheduler is docs/events/scheduler.md.
func newScheduler(client kubernetes.Interface, c *schedulerConfig) error {
	broadcaster, err := events.NewForClient(client, events.Options{})
	if err != nil {
		return err
	}
	c.EventBroadcaster = broadcaster.Adapter()
	return nil
}

// TestPagesRun: the code of the pages records.
func TestPagesRun(t *testing.T) {
	pod := &v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web", UID: "1"}
	for name, record := range map[string]func(client kubernetes.Interface) error{
		"kubelet": func(client kubernetes.Interface) error {
			deps := &kubeletDependencies{}
			return runKubelet(t.Context(), client, "node-1", deps, func() error {
				deps.Recorder.Event(pod, "Warning", "Failed", "Error: ErrImagePull")
				deps.Recorder.Event(pod, "Warning", "Failed", "Error: ImagePullBackOff")
				return nil
			})
		},
		"controller": func(client kubernetes.Interface) error {
			return runController(t.Context(), client, func(r clientevents.EventRecorderLogger) error {
				r.Eventf(pod, nil, "Normal", "Scaled", "Scale", "to %d", 1)
				r.Eventf(pod, nil, "Normal", "Ready", "Wait", "it is")
				return nil
			})
		},
		"scheduler": func(client kubernetes.Interface) error {
			c := &schedulerConfig{}
			if err := newScheduler(client, c); err != nil {
				return err
			}
			// As kube-scheduler does: recorders of profiles, recording until a channel is closed,
			// and a shutdown.
			r := c.EventBroadcaster.NewRecorder("default-scheduler")
			stop := make(chan struct{})
			defer close(stop)
			c.EventBroadcaster.StartRecordingToSink(stop)
			r.Eventf(pod, nil, "Normal", "Scheduled", "Binding", "assigned to %s", "node-1")
			c.EventBroadcaster.DeprecatedNewLegacyRecorder("default-scheduler").Event(pod, "Normal", "Elected", "leader")
			c.EventBroadcaster.Shutdown()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := events.NewFakeClientset()
			if err := record(client); err != nil {
				t.Fatal(err)
			}
			// A fake clientset keeps the groups apart: the events are where client-go would put them.
			older, err := client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
			newer, err2 := client.EventsV1().Events("ns").List(t.Context(), metav1.ListOptions{})
			want := map[string][2]int{"kubelet": {2, 0}, "controller": {0, 2}, "scheduler": {1, 1}}[name]
			if got := [2]int{len(older.Items), len(newer.Items)}; got != want || err != nil || err2 != nil {
				t.Errorf("%v events are stored in core/v1 and events.k8s.io/v1, want %v: %v, %v", got, want, err, err2)
			}
		})
	}
}
