// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Answers that are strange in a single way, one after another.

// TestAListThatBreaksOffIsNotMadeAnotherWay: a streaming list that has shown something, and then
// says that it is not implemented, has failed. The plain list would show the same items once more.
func TestAListThatBreaksOffIsNotMadeAnotherWay(t *testing.T) {
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}}
	c := serve(t, s, Config{})
	s.on("StreamPodSandboxes", func(c *call) error {
		if err := answering(s.listSandboxes)(c); err != nil {
			return err
		}
		return status.Error(codes.Unimplemented, "after all")
	})
	_, err := c.List(t.Context(), 0)
	wantError(t, err, "StreamPodSandboxes", "after all")
	if n := s.called("ListPodSandbox"); n != 0 {
		t.Errorf("the plain list was made %d times", n)
	}
}

// TestAListMadeAgainShowsNothingTwice: a container of a sandbox that the first list has not shown
// has the sandboxes listed again, which is no fault of the runtime.
func TestAListMadeAgainShowsNothingTwice(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready)},
		containers: []*runtimeapi.Container{container("c", "later", "", running)},
	}
	c := serve(t, s, Config{})
	must(c.List(t.Context(), 0))(t)
	if n := c.Stats().Duplicates; n != 0 || s.called("ListPodSandbox") != 2 {
		t.Errorf("%d duplicates in %d lists of sandboxes, want none in 2", n, s.called("ListPodSandbox"))
	}
}

// TestOfTwoEntriesTheLaterPhaseHolds: a list of a pod that shows an ID twice.
func TestOfTwoEntriesTheLaterPhaseHolds(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready)},
		containers: []*runtimeapi.Container{container("c", "s", "u", exited), container("c", "s", "u", running)},
	}
	c := serve(t, s, Config{})
	pod := must(c.ListPod(t.Context(), "u"))(t)
	if len(pod.Items) != 2 || phaseOf(pod.Items, "c") != pleg.PhaseExited {
		t.Errorf("the pod has %v", pod.Items)
	}
}

// TestASandboxIsForgottenWithItsContainers: the record of a sandbox that has gone stays only as
// long as it names the pod of a container.
func TestASandboxIsForgottenWithItsContainers(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready)},
		containers: []*runtimeapi.Container{container("c", "s", "", running)},
	}
	c := serve(t, s, Config{})
	must(c.List(t.Context(), 0))(t)
	s.set(func() { s.sandboxes = nil })
	must(c.List(t.Context(), 0))(t)
	if len(c.index.sandboxes) != 1 {
		t.Errorf("%d sandboxes are remembered, of which one has a container", len(c.index.sandboxes))
	}
	s.set(func() { s.containers = nil })
	must(c.List(t.Context(), 0))(t)
	if len(c.index.sandboxes) != 0 {
		t.Errorf("%d sandboxes are remembered, and nothing is left", len(c.index.sandboxes))
	}
}

// TestOfTwoAnswersTheLaterPhaseHolds: two sandboxes bring the same container along, in any order.
func TestOfTwoAnswersTheLaterPhaseHolds(t *testing.T) {
	for _, first := range []runtimeapi.ContainerState{running, exited} {
		second := running + exited - first
		s := statuses(0, nil, nil)
		s.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			state := map[string]runtimeapi.ContainerState{"s1": first, "s2": second}[id]
			return &runtimeapi.PodSandboxStatusResponse{
				Status:             sandboxStatus(id, "u", ready),
				ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer("c", "u", state)},
			}, nil
		}
		c := serve(t, s, Config{})
		pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s1", Kind: pleg.Sandbox}, {ID: "s2", Kind: pleg.Sandbox}, {ID: "c"}}}
		in := must(c.Inspect(t.Context(), pod))(t)
		shown := in.Status.Containers()
		if phaseOf(in.Pod.Items, "c") != pleg.PhaseExited || len(shown) != 1 || shown[0].Phase != pleg.PhaseExited {
			t.Errorf("%v first: %v, %v", first, in.Pod.Items, shown)
		}
	}
}

// TestWhatIsOfAnotherPodIsLeftOut: an event may name an ID of another pod, whose status then comes.
func TestWhatIsOfAnotherPodIsLeftOut(t *testing.T) {
	s := &stub{
		podSandboxStatus: func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			uid := map[string]string{"s": "u", "foreign": "v"}[id]
			return &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(id, uid, ready)}, nil
		},
		containerStatus: func(id string) (*runtimeapi.ContainerStatusResponse, error) {
			uid := map[string]string{"c": "u", "stray": "v"}[id]
			return &runtimeapi.ContainerStatusResponse{Status: wholeContainer(id, uid, running)}, nil
		},
	}
	c := serve(t, s, Config{})
	pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "foreign", Kind: pleg.Sandbox}, {ID: "c"}, {ID: "stray"}}}
	in := must(c.Inspect(t.Context(), pod))(t)
	if len(in.Pod.Items) != 2 || len(in.Status.Sandboxes()) != 1 || len(in.Status.Containers()) != 1 {
		t.Errorf("the pod has %v", in.Pod.Items)
	}
}

// TestWhatABundleBringsIsRead: a container whose own status cannot be read, and that the late
// answer about the sandbox brings along.
func TestWhatABundleBringsIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{
			podSandboxStatus: func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
				time.Sleep(2 * stuckAfter)
				return &runtimeapi.PodSandboxStatusResponse{
					Status:             sandboxStatus(id, "u", ready),
					ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer("c", "u", exited)},
				}, nil
			},
			containerStatus: func(string) (*runtimeapi.ContainerStatusResponse, error) {
				return nil, status.Error(codes.Internal, "broken")
			},
		}
		c := serve(t, s, Config{})
		pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "c"}}}
		in, err := c.Inspect(t.Context(), pod)
		if err != nil || len(in.Unread) > 0 || phaseOf(in.Pod.Items, "c") != pleg.PhaseExited || s.called("ContainerStatus") != 1 {
			t.Errorf("%v, %v, unread %v, %d calls of ContainerStatus", err, in.Pod.Items, in.Unread, s.called("ContainerStatus"))
		}
	})
}

// phaseOf returns the phase of an ID, PhaseRemoved if it is missing.
func phaseOf(items []pleg.Item, id string) pleg.Phase {
	for _, it := range items {
		if it.ID == id {
			return it.Phase
		}
	}
	return pleg.PhaseRemoved
}
