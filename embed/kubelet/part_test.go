// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestPartOfAListing assembles the requested part of a remembered listing, in its order, with
// what the kubelet has made since in front; and nothing if an ID is unknown, or the order of two
// sandboxes.
func TestPartOfAListing(t *testing.T) {
	c := func(id string) *kubecontainer.Container {
		return &kubecontainer.Container{ID: kubecontainer.ContainerID{Type: "fake", ID: id}}
	}
	listing := &kubecontainer.Pod{
		ID:   "u",
		Name: "web",
		Sandboxes: []*kubecontainer.Container{
			c("s2"),
			c("s1"),
		},
		Containers: []*kubecontainer.Container{c("b"), c("a")},
	}
	own := func(id string) string { return map[string]string{"s3": "s3", "s4": "s4", "d": "s3"}[id] }
	for asked, want := range map[string]string{
		"a b s1 s2":      "s2 s1 b a, 0 added",
		"s2 a":           "s2 a, 0 added",
		"a b":            "b a, 0 added",
		"s2 s1 a d":      "s2 s1 d a, 1 added",
		"a b s1 s2 s3 d": "s3 s2 s1 d b a, 2 added",
		"s3 d":           "s3 d, 2 added",
		"s4 s2 s1":       "s4 s2 s1, 1 added",
		"s4 s3 s2 s1":    "none",
		"s2 s1 s3 d s4":  "none",
		"s2 s1 a new":    "none",
		"a b s1 s2 x d":  "none",
	} {
		request := pleg.Pod{UID: "u"}
		for id := range strings.FieldsSeq(asked) {
			it := pleg.Item{ID: id}
			if id[0] == 's' {
				it.Kind = pleg.Sandbox
			}
			request.Items = append(request.Items, it)
		}
		got := "none"
		if p, added := assemble(listing, request, own); p != nil {
			var ids []string
			for _, x := range append(append([]*kubecontainer.Container{}, p.Sandboxes...), p.Containers...) {
				ids = append(ids, x.ID.ID)
				if x.ID.ID == "d" && x.PodSandboxID != "s3" {
					t.Errorf("d is in the sandbox %q", x.PodSandboxID)
				}
			}
			got = fmt.Sprintf("%s, %d added", strings.Join(ids, " "), added)
			if p.Name != "web" {
				t.Errorf("the part is of pod %q", p.Name)
			}
		}
		if got != want {
			t.Errorf("of %q: got %q, want %q", asked, got, want)
		}
	}
	if len(listing.Sandboxes) != 2 || listing.Containers[0].ID.ID != "b" {
		t.Errorf("the listing was changed: %v", listing)
	}
	unlisted := pleg.Pod{UID: "u", Name: "web", Items: []pleg.Item{{ID: "s3", Kind: pleg.Sandbox}, {ID: "d"}}}
	if p, added := assemble(nil, unlisted, own); p == nil || p.Name != "web" || added != 2 || p.Timestamp.IsZero() {
		t.Errorf("of what the kubelet has made alone: %v, %d added", p, added)
	}
	if p, _ := assemble(nil, unlisted, nil); p != nil {
		t.Errorf("without own calls: %v, want nothing", p)
	}
}

// counted counts the lists of a pod.
type counted struct {
	*fakeRuntime
	pods int
}

func (c *counted) GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error) {
	c.pods++
	return c.fakeRuntime.GetPod(ctx, uid)
}

// TestWhatCameSinceIsListedOnce checks that an ID missing in the remembered listing costs a single
// list, and not a list for each later read.
func TestWhatCameSinceIsListedOnce(t *testing.T) {
	runtime := &counted{fakeRuntime: newFakeRuntime()}
	s := &source{runtime: runtime}
	early := pod("p")
	early.Sandboxes = []*kubecontainer.Container{container("s", running)}
	runtime.show(early)
	if _, err := s.ListPod(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	now := pod("p", container("c", running))
	now.Sandboxes = early.Sandboxes
	runtime.show(now)
	asked := pleg.Pod{UID: "p", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "c"}}}
	for range 3 {
		read, err := s.Inspect(t.Context(), asked)
		if err != nil || len(read.Pod.Items) != 2 {
			t.Fatalf("%v, %v, want the statuses of s and c", read.Pod, err)
		}
	}
	if runtime.pods != 2 {
		t.Errorf("the pod was listed %d times, want at first and when c had come", runtime.pods)
	}
}

// TestWhatTheKubeletMadeIsNotListed checks that an ID made by an own call costs no list of the
// pod.
func TestWhatTheKubeletMadeIsNotListed(t *testing.T) {
	runtime := &counted{fakeRuntime: newFakeRuntime()}
	s := &source{runtime: runtime, sandboxOf: func(string) string { return "s" }}
	asked := pleg.Pod{UID: "p", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "c"}}}
	for range 2 {
		read, err := s.Inspect(t.Context(), asked)
		if err != nil || len(read.Pod.Items) != 2 || runtime.pods != 0 {
			t.Fatalf(
				"%v, %v, %d lists; want the statuses of s and c without a list",
				read.Pod,
				err,
				runtime.pods,
			)
		}
	}
}

// TestTwoSandboxesComeInTheRuntimesOrder checks that a pod with two sandboxes that no list has
// shown is listed, once: the kubelet takes the first for the newest.
func TestTwoSandboxesComeInTheRuntimesOrder(t *testing.T) {
	runtime := &counted{fakeRuntime: newFakeRuntime()}
	s := &source{runtime: runtime, sandboxOf: func(id string) string { return id }}
	shown := pod("p")
	shown.Sandboxes = []*kubecontainer.Container{container("new", running), container("old", running)}
	runtime.show(shown)
	asked := pleg.Pod{
		UID:   "p",
		Items: []pleg.Item{{ID: "new", Kind: pleg.Sandbox}, {ID: "old", Kind: pleg.Sandbox}},
	}
	for range 2 {
		read, err := s.Inspect(t.Context(), asked)
		if err != nil || len(read.Status.SandboxStatuses) != 2 || read.Status.SandboxStatuses[0].Id != "new" ||
			runtime.pods != 1 {
			t.Fatalf("%v, %v, %d lists; want the statuses of new and old after one", read.Pod, err, runtime.pods)
		}
	}
}

// TestWithoutWhatTheKubeletHasRemoved takes a container or a sandbox out of a status, and leaves
// the status as it is.
func TestWithoutWhatTheKubeletHasRemoved(t *testing.T) {
	c := func(id string) *kubecontainer.Status {
		return &kubecontainer.Status{ID: kubecontainer.ContainerID{Type: "fake", ID: id}}
	}
	status := &kubecontainer.PodStatus{
		IPs:                     []string{"10.0.0.1"},
		ContainerStatuses:       []*kubecontainer.Status{c("b"), c("a")},
		ActiveContainerStatuses: []*kubecontainer.Status{c("b")},
		SandboxStatuses: []*runtimeapi.PodSandboxStatus{
			{Id: "s2"},
			{Id: "s1"},
		},
	}
	shown := func(s *kubecontainer.PodStatus) string {
		var all []string
		for _, list := range [][]*kubecontainer.Status{s.ContainerStatuses, s.ActiveContainerStatuses} {
			for _, x := range list {
				all = append(all, x.ID.ID)
			}
			all = append(all, "|")
		}
		for _, x := range s.SandboxStatuses {
			all = append(all, x.Id)
		}
		return strings.Join(append(all, s.IPs...), " ")
	}
	const before = "b a | b | s2 s1 10.0.0.1"
	for id, want := range map[string]string{
		"a":      "b | b | s2 s1 10.0.0.1",
		"b":      "a | | s2 s1 10.0.0.1",
		"s1":     "b a | b | s2 10.0.0.1",
		"nobody": before,
	} {
		if got := shown(without(status, id)); got != want {
			t.Errorf("without %s: %q, want %q", id, got, want)
		}
	}
	if got := shown(status); got != before {
		t.Errorf("the status has changed: %q", got)
	}
}
