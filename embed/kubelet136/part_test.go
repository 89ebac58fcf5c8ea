// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet136

import (
	"strings"
	"testing"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestPartOfAListing: of a remembered listing what was asked for is read, in the listing's order; and
// nothing of it if an ID was asked for that it does not have.
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
