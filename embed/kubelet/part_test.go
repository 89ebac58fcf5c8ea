// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestPartOfAListing reads the requested part of a remembered listing, in the listing's order; and
// nothing for an ID unknown to the listing.
func TestPartOfAListing(t *testing.T) {
	c := func(id string) *kubecontainer.Container {
		return &kubecontainer.Container{ID: kubecontainer.ContainerID{Type: "fake", ID: id}}
	}
	listing := &kubecontainer.Pod{
		ID: "u", Name: "web",
		Sandboxes: []*kubecontainer.Container{c("s2"), c("s1")}, Containers: []*kubecontainer.Container{c("b"), c("a")},
	}
	for asked, want := range map[string]string{
		"a b s1 s2":   "s2 s1 b a",
		"s2 a":        "s2 a",
		"a b":         "b a",
		"s2 s1 a new": "none",
		"new":         "none",
		"a b s1 s2 x": "none",
	} {
		var items []pleg.Item
		for id := range strings.FieldsSeq(asked) {
			items = append(items, pleg.Item{ID: id})
		}
		got := "none"
		if p := part(listing, items); p != nil {
			var ids []string
			for _, x := range append(append([]*kubecontainer.Container{}, p.Sandboxes...), p.Containers...) {
				ids = append(ids, x.ID.ID)
			}
			if got = strings.Join(ids, " "); p.Name != "web" {
				t.Errorf("the part is of pod %q", p.Name)
			}
		}
		if got != want {
			t.Errorf("of %q: got %q, want %q", asked, got, want)
		}
	}
	if part(nil, nil) != nil || len(listing.Sandboxes) != 2 || listing.Containers[0].ID.ID != "b" {
		t.Errorf("nothing remembered has a part, or the listing was changed: %v", listing)
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
