// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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

// TestSandboxOf checks that the sandbox of what an own call has made is known up to an answer that
// says that the item or its sandbox is gone.
func TestSandboxOf(t *testing.T) {
	r := newToy()
	c := NewCalls(r)
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
	c.TellCalls(func(pleg.OwnCall) func(error, ...pleg.Item) {
		want("s", "s", "other") // a read beside the call may want to know
		return func(error, ...pleg.Item) {}
	})
	r.failNext = errors.New("given up")
	if c.RemoveContainer(t.Context(), first) == nil {
		t.Error("the removal should have failed")
	}
	want("s", "s", "other")
	check(t, c.RemoveContainer(t.Context(), first))
	c.TellCalls(nil)
	want("", "s", "other")
	check(t, c.RemovePodSandbox(t.Context(), "s"))
	want("", "", "other")
	check(t, c.RemoveContainer(t.Context(), other))
	check(t, c.RemoveContainer(t.Context(), "a stranger's"))
	if len(c.made.of) != 0 || len(c.made.all) != 0 {
		t.Errorf("%v is remembered of what is gone", c.made)
	}
	for range maxMade + 1 {
		make("s")
	}
	if n := len(c.made.of); n == 0 || n > maxMade {
		t.Errorf("%d sandboxes are remembered, want %d at most", n, maxMade)
	}
}

// BenchmarkMade makes and removes a pod of two containers beside others, and reports how much more
// that costs than beside ten others: the cost is that of the pod.
func BenchmarkMade(b *testing.B) {
	others := []int{10, 1000, maxMade - 10}
	nodes := make([]madeItems, len(others))
	for i, n := range others {
		for j := range n {
			nodes[i].keep(fmt.Sprint("item", j), fmt.Sprint("sandbox", j/3))
		}
	}
	took := make([]time.Duration, len(others))
	for b.Loop() {
		for i := range nodes {
			begun := time.Now()
			for _, id := range []string{"s", "c1", "c2"} {
				nodes[i].keep(id, "s")
			}
			for _, id := range []string{"c1", "c2", "s"} {
				nodes[i].drop(id)
			}
			took[i] += time.Since(begun)
		}
	}
	for i, n := range others {
		b.ReportMetric(float64(took[i])/float64(took[0]), fmt.Sprintf("x-beside-%d", n))
	}
}
