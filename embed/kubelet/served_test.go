// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"

	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// noRevision asks for everything.
var noRevision pleg.Revision

// listed is a CRI client with a container, and a count of its calls.
type listed struct {
	internalapi.RuntimeService

	mu                              sync.Mutex
	sandboxes, containers, statuses int
	open                            chan struct{}
}

func (c *listed) ListPodSandbox(
	context.Context,
	*runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sandboxes++
	return []*runtimeapi.PodSandbox{{Id: "s"}}, nil
}

func (c *listed) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.containers++
	return []*runtimeapi.Container{
		{Id: "c", PodSandboxId: "s", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}, nil
}

func (c *listed) ContainerStatus(
	_ context.Context,
	id string,
	_ bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statuses++
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: id, State: runtimeapi.ContainerState_CONTAINER_RUNNING, LogPath: "/log/" + id,
	}}, nil
}

func (c *listed) StopContainer(context.Context, string, int64) error { return nil }

func (c *listed) GetContainerEvents(
	ctx context.Context,
	_ chan *runtimeapi.ContainerEventResponse,
	_ func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	close(c.open)
	<-ctx.Done()
	return ctx.Err()
}

// manager lists as the runtime manager does: both kinds.
type manager struct {
	kubecontainer.Runtime
	client internalapi.RuntimeService
}

func (m manager) GetPods(ctx context.Context, _ bool) ([]*kubecontainer.Pod, error) {
	if _, err := m.client.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{}); err != nil {
		return nil, err
	}
	list, err := m.client.ListContainers(ctx, &runtimeapi.ContainerFilter{})
	pods := make([]*kubecontainer.Pod, len(list))
	for i, c := range list {
		state := kubecontainer.ContainerStateRunning
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			state = kubecontainer.ContainerStateExited
		}
		pods[i] = pod("p", container(c.Id, state))
	}
	return pods, err
}

func (c *listed) asked() (sandboxes, containers, statuses int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sandboxes, c.containers, c.statuses
}

// gates turns the gate of the generator on, and that of lists on or off.
func gates(t *testing.T, lists bool) {
	gate := utilfeature.DefaultFeatureGate
	featuregatetesting.SetFeatureGateDuringTest(t, gate, features.EventDrivenPLEG, true)
	featuregatetesting.SetFeatureGateDuringTest(t, gate, features.EventDrivenPLEGServeLists, lists)
}

// serving returns a client that serves, and its wrapped client.
func serving(t *testing.T) (*embed.Service, *listed) {
	gates(t, true)
	client := &listed{open: make(chan struct{})}
	_, wrapped := Wrap(kubecontainer.NewCache(), client)
	s := WithLists(wrapped).(*embed.Service)
	s.ServeLists(func() bool { return true }, time.Hour, func(string, int) {})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = s.GetContainerEvents(ctx, make(chan *runtimeapi.ContainerEventResponse), nil) })
	t.Cleanup(func() { cancel(); done.Wait() })
	<-client.open
	if _, err := (&source{runtime: manager{client: s}}).List(ctx, noRevision); err != nil {
		t.Fatal(err)
	}
	return s, client
}

func TestGateOffNothingIsWrapped(t *testing.T) {
	client := &listed{}
	stock := kubecontainer.NewCache()
	if cache, got := Wrap(stock, client); cache != stock || got != internalapi.RuntimeService(client) {
		t.Errorf("Wrap: %T, %T", cache, got)
	}
	if got := WithLists(client); got != internalapi.RuntimeService(client) {
		t.Errorf("WithLists: %T", got)
	}
	if got := Logs(client); got != internalapi.RuntimeService(client) {
		t.Errorf("Logs: %T", got)
	}
	runtime := &containertest.FakeRuntime{}
	if got := Housekeeping(runtime, client); got != PodsGetter(runtime) {
		t.Errorf("Housekeeping: %T", got)
	}
	if got := ImageGC(runtime, client, stock); got != kubecontainer.Runtime(runtime) {
		t.Errorf("ImageGC: %T", got)
	}
}

// GetPod returns the pod of the client's container.
func (m manager) GetPod(ctx context.Context, _ types.UID) (*kubecontainer.Pod, error) {
	pods, err := m.GetPods(ctx, true)
	return pods[0], err
}

// GetPodStatus returns a listed status.
func (m manager) GetPodStatus(_ context.Context, p *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	c := p.Containers[0]
	return &kubecontainer.PodStatus{
		ID:                p.ID,
		ContainerStatuses: []*kubecontainer.Status{{ID: c.ID, Name: c.Name, State: c.State}},
	}, nil
}

// TestWithTheGateOfListsOffThereIsNoLedger checks that nothing of lists from memory is there.
func TestWithTheGateOfListsOffThereIsNoLedger(t *testing.T) {
	gates(t, false)
	_, wrapped := Wrap(kubecontainer.NewCache(), &listed{})
	if got := WithLists(wrapped); got != wrapped {
		t.Errorf("WithLists: %T", got)
	}
	if got := Logs(wrapped); got != wrapped {
		t.Errorf("Logs: %T", got)
	}
	runtime := manager{client: wrapped}
	if got := Housekeeping(runtime, wrapped); got != PodsGetter(runtime) {
		t.Errorf("Housekeeping: %T", got)
	}
}

// TestListsHaveASwitch runs a generator on a wrapped client, with the gate for lists on and off.
func TestListsHaveASwitch(t *testing.T) {
	for _, on := range []bool{true, false} {
		gates(t, on)
		synctest.Test(t, func(t *testing.T) {
			client := &listed{open: make(chan struct{})}
			cache, wrapped := Wrap(kubecontainer.NewCache(), client)
			wrapped = WithLists(wrapped)
			g, err := New(Config{
				Runtime: manager{client: wrapped}, Events: wrapped, Cache: cache,
				Recorder: record.NewFakeRecorder(1000), Node: &v1.ObjectReference{Kind: "Node", Name: "n"},
				Removable: func(types.UID) bool { return false },
			})
			if err != nil {
				t.Fatal(err)
			}
			ServeLists(g, wrapped)
			start(g)
			defer g.Stop()
			time.Sleep(10 * time.Second)
			_, before, _ := client.asked()
			if list, err := wrapped.ListContainers(t.Context(), &runtimeapi.ContainerFilter{}); err != nil || len(list) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			if _, after, _ := client.asked(); (after == before) != on {
				t.Errorf("gate on: %v; the runtime was asked %d times", on, after-before)
			}
		})
	}
}

// considered are the methods of the CRI client: those that the service observes or answers, and
// those without an effect on lists. The products of RestorePod are left to its events and the next
// full list, like those of others; no kubelet calls it yet.
var considered = map[string]string{
	"ListPodSandbox":     "answered",
	"ListContainers":     "answered",
	"PodSandboxStatus":   "observed",
	"ContainerStatus":    "observed",
	"GetContainerEvents": "observed",
	"RunPodSandbox":      "observed",
	"StopPodSandbox":     "observed",
	"RemovePodSandbox":   "observed",
	"CreateContainer":    "observed",
	"StartContainer":     "observed",
	"StopContainer":      "observed",
	"RemoveContainer":    "observed",

	"Attach":                    "no change",
	"CheckpointContainer":       "no change",
	"CheckpointPod":             "no change",
	"Close":                     "no change",
	"ContainerStats":            "no change",
	"Exec":                      "no change",
	"ExecSync":                  "no change",
	"ListContainerStats":        "no change",
	"ListMetricDescriptors":     "no change",
	"ListPodSandboxMetrics":     "no change",
	"ListPodSandboxStats":       "no change",
	"PodSandboxStats":           "no change",
	"PortForward":               "no change",
	"ReopenContainerLog":        "no change",
	"RestorePod":                "like a stranger's",
	"RuntimeConfig":             "no change",
	"Status":                    "no change",
	"UpdateContainerResources":  "no change",
	"UpdatePodSandboxResources": "no change",
	"UpdateRuntimeConfig":       "no change",
	"Version":                   "no change",
}

// TestEveryMethodOfTheClientIsConsidered fails for a method of a later CRI, which may make or end
// a container.
func TestEveryMethodOfTheClientIsConsidered(t *testing.T) {
	methods := reflect.TypeFor[internalapi.RuntimeService]()
	for method := range methods.Methods() {
		if name := method.Name; considered[name] == "" {
			t.Errorf("%s is new: does it change what a list shows? Then embed.Service must observe it", name)
		}
	}
}

func TestHousekeepingGetsTheSamePodsWhileNothingChanges(t *testing.T) {
	s, client := serving(t)
	h := Housekeeping(manager{client: s}, s)
	before, _, _ := client.asked()
	first, err := h.GetPods(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	second, err := h.GetPods(t.Context(), false)
	if err != nil || !slices.Equal(first, second) || &first[0] == &second[0] {
		t.Errorf("want the same pods in slices of their own: %v, %v, %v", first, second, err)
	}
	if err := s.StopContainer(t.Context(), "c", 1); err != nil {
		t.Fatal(err)
	}
	third, err := h.GetPods(t.Context(), false)
	if err != nil || third[0] == first[0] ||
		third[0].Containers[0].State != kubecontainer.ContainerStateExited {
		t.Errorf("after the stop: %+v, %v", third[0].Containers[0], err)
	}
	if n, _, _ := client.asked(); n != before {
		t.Errorf("the runtime was asked %d times", n-before)
	}
}

func TestTheGeneratorReadsFromTheRuntime(t *testing.T) {
	s, client := serving(t)
	src := &source{runtime: manager{client: s}}
	for range 3 {
		if _, err := src.List(t.Context(), noRevision); err != nil {
			t.Fatal(err)
		}
	}
	if sandboxes, containers, _ := client.asked(); sandboxes != 4 || containers != 4 {
		t.Errorf("the runtime saw %d and %d lists of 4", sandboxes, containers)
	}
}

func TestLogsKnowThePath(t *testing.T) {
	s, client := serving(t)
	l := Logs(s)
	for range 3 {
		list, err := l.ListContainers(t.Context(), &runtimeapi.ContainerFilter{})
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		got, err := l.ContainerStatus(t.Context(), "c", false)
		if err != nil || got.Status.LogPath != "/log/c" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if _, containers, statuses := client.asked(); containers != 1 || statuses != 1 {
		t.Errorf("the runtime saw %d lists and %d statuses, want 1 and 1", containers, statuses)
	}
	s.ServeLists(func() bool { return true }, 0, func(string, int) {}) // every list is too old
	if _, err := l.ContainerStatus(t.Context(), "c", false); err != nil {
		t.Fatal(err)
	}
	if _, _, statuses := client.asked(); statuses != 2 {
		t.Errorf("a path from memory beyond the age limit: %d statuses, want 2", statuses)
	}
}

func TestImageGCKnowsTheMounts(t *testing.T) {
	s, _ := serving(t)
	cache := newCache()
	status := &kubecontainer.Status{ID: kubecontainer.ContainerID{Type: "test", ID: "c"}}
	cache.Set(
		"p",
		&kubecontainer.PodStatus{ID: "p", ContainerStatuses: []*kubecontainer.Status{status}},
		nil,
		time.Now(),
	)
	g := ImageGC(&containertest.FakeRuntime{}, s, cache)
	if got, err := g.GetContainerStatus(t.Context(), "p", status.ID); err != nil || got != status {
		t.Errorf("%v, %v", got, err)
	}
	other := kubecontainer.ContainerID{Type: "test", ID: "other"}
	if got, _ := g.GetContainerStatus(t.Context(), "p", other); got == status {
		t.Error("another container's status")
	}
	s.ServeLists(func() bool { return false }, time.Hour, func(string, int) {})
	if got, _ := g.GetContainerStatus(t.Context(), "p", status.ID); got == status {
		t.Error("a status from memory while lists are not served")
	}
}
