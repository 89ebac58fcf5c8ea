// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestOwnCallsAreTold checks that each own call is reported before it is made, and then its effect,
// or its failure; also after a panic.
func TestOwnCallsAreTold(t *testing.T) {
	r := newToy()
	ownCallsAreTold(t, r, NewCalls(r))
}

func ownCallsAreTold(t *testing.T, r *toy, s *Calls) {
	_ = s.StartContainer(t.Context(), "nobody is told of this one")
	var told []string
	s.TellCalls(func(call pleg.OwnCall) func(error, ...pleg.Item) {
		told = append(told, fmt.Sprintf("%s/%s %s%s", call.Pod.Namespace, call.Pod.Name, call.Pod.UID, call.ID))
		return func(err error, now ...pleg.Item) {
			for _, it := range now {
				told = append(told, fmt.Sprintf("%s %s %v", it.ID, it.Name, it.Phase))
			}
			if err != nil {
				told = append(told, err.Error())
			}
		}
	})
	want := func(want ...string) {
		t.Helper()
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		told = nil
	}
	pod := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Name: "web", Namespace: "shop"},
	}
	id, err := s.CreateContainer(
		t.Context(),
		"s",
		&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		pod,
	)
	check(t, err)
	want("shop/web u", id+" main Created")
	_ = s.StartContainer(t.Context(), id)
	want("/ "+id, id+"  Running")
	check(t, s.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{}))
	want("/ " + id) // what the call changes only a read of statuses shows
	_ = s.StopContainer(t.Context(), id, 0)
	want("/ "+id, id+"  Exited")
	_ = s.RemoveContainer(t.Context(), id)
	want("/ "+id, id+"  Removed")
	r.failNext = errors.New("deadline exceeded")
	if _, err := s.CreateContainer(t.Context(), "s", &runtimeapi.ContainerConfig{}, pod); err == nil {
		t.Fatal("the call should have failed")
	}
	want("shop/web u", "deadline exceeded")
	func() {
		defer func() { _ = recover() }()
		_, _ = s.RunPodSandbox(t.Context(), pod, "") // the toy has no such call
	}()
	want("shop/web u", errNoAnswer.Error())
}

// TestSandboxOf checks that the sandbox of what an own call has made is known until the removal.
func TestSandboxOf(t *testing.T) {
	c := NewCalls(newToy())
	make := func(sandbox string) string {
		id, err := c.CreateContainer(t.Context(), sandbox, nil, nil)
		check(t, err)
		return id
	}
	first, second := make("s"), make("s")
	other := make("other")
	want := func(sandboxes ...string) {
		t.Helper()
		got := []string{c.SandboxOf(first), c.SandboxOf(second), c.SandboxOf(other)}
		if !slices.Equal(got, sandboxes) {
			t.Errorf("the sandboxes are %q, want %q", got, sandboxes)
		}
	}
	want("s", "s", "other")
	check(t, c.RemoveContainer(t.Context(), first))
	want("", "s", "other")
	check(t, c.RemovePodSandbox(t.Context(), "s"))
	want("", "", "other")
	for range maxMade {
		make("s")
	}
	if len(c.made) > maxMade {
		t.Errorf("%d sandboxes are remembered, want %d at most", len(c.made), maxMade)
	}
}
