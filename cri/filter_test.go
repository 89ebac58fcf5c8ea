// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// inNamespace returns a listed sandbox of a pod with a namespace and a label.
func inNamespace(id, uid, namespace, app string) *runtimeapi.PodSandbox {
	s := sandbox(id, uid, ready)
	s.Metadata.Namespace = namespace
	s.Labels[labelPodNamespace] = namespace
	s.Labels["app"] = app
	return s
}

// TestFilterOfLists: lists show the pods that pass, whatever is left of a pod, and count no other.
func TestFilterOfLists(t *testing.T) {
	s := &stub{
		sandboxes: []*runtimeapi.PodSandbox{
			inNamespace("s-web", "web", "shop", "web"),
			inNamespace("s-db", "db", "shop", "db"),
			inNamespace("s-sys", "sys", "kube-system", "web"),
		},
		containers: []*runtimeapi.Container{
			container("c-web", "s-web", "web", running),
			container("c-db", "s-db", "db", running),
			container("c-sys", "s-sys", "sys", running),
		},
	}
	orphan := container("c-orphan", "s-gone", "orphan", exited)
	orphan.Labels[labelPodNamespace] = "shop"
	s.containers = append(s.containers, orphan)
	asked := make(map[cache.UID]int)
	c := serve(t, s, Config{Filter: func(p PodMeta) bool {
		asked[p.UID]++
		return p.Namespace == "shop" && p.Labels["app"] != "db"
	}})
	wantPods := func(l pleg.Listing, total int, want ...string) {
		t.Helper()
		var got []string
		for _, p := range l.Pods {
			got = append(got, string(p.UID))
		}
		if !slices.Equal(got, want) || l.Total != total {
			t.Errorf("%q of %d pods are listed, want %q of %d", got, l.Total, want, total)
		}
	}
	first := mustList(t, c, 0)
	wantPods(first, 2, "orphan", "web")
	wantPods(mustList(t, c, 0), 2, "orphan", "web")
	s.set(func() {
		s.containers[1].State = exited // of db
		s.containers[2].State = exited // of sys
		s.sandboxes = s.sandboxes[:2]  // sys keeps a container
	})
	second := mustList(t, c, 2)
	wantPods(second, 2)
	if len(second.Gone) > 0 || !second.Delta {
		t.Errorf("listing %+v", second)
	}
	for uid, n := range asked {
		if n != 1 {
			t.Errorf("the filter was asked %d times about %s", n, uid)
		}
	}
	s.set(func() { s.sandboxes, s.containers = nil, nil })
	last := mustList(t, c, 3)
	if slices.Sort(last.Gone); !slices.Equal(last.Gone, []cache.UID{"orphan", "web"}) || last.Total != 0 {
		t.Errorf("listing %+v", last)
	}
	if n := len(c.excluded.listed); n != 0 {
		t.Errorf("%d pods that are gone are remembered as refused", n)
	}
}

// TestFilterOfEvents: events about refused pods make no claim, also those without a sandbox.
func TestFilterOfEvents(t *testing.T) {
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{inNamespace("s-listed", "listed", "kube-system", "")}}
	c := serve(t, s, Config{Filter: func(p PodMeta) bool { return p.Namespace == "shop" }})
	mustList(t, c, 0)
	status := func(id, uid, namespace string) *runtimeapi.PodSandboxStatus {
		return statusOfSandbox(inNamespace(id, uid, namespace, ""))
	}
	event := func(id string, sandbox *runtimeapi.PodSandboxStatus, uid string) []byte {
		return encode(&runtimeapi.ContainerEventResponse{
			ContainerId:        id,
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
			PodSandboxStatus:   sandbox,
			ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer(id, uid, running)},
		})
	}
	s.on("GetContainerEvents", raw(
		event("of-listed", nil, "listed"),
		event("of-heard", status("s-heard", "heard", "kube-system"), "heard"),
		event("of-heard-again", nil, "heard"),
		event("passes", status("s-shop", "shop", "shop"), "shop"),
		event("nobody-knows", nil, "unknown"),
	))
	var got []string
	for claim, err := range c.Events(t.Context()) {
		if err == nil {
			got = append(got, claim.Item.ID)
		}
	}
	if want := "passes nobody-knows"; strings.Join(got, " ") != want {
		t.Errorf("claims about %q, want %q", got, want)
	}
	mustList(t, c, 0)
	mustList(t, c, 0)
	if n := len(c.excluded.heard) + len(c.excluded.olderHeard); n != 0 {
		t.Errorf("%d pods that no list shows are remembered", n)
	}
}

// TestFilterIsAskedWithTheSandbox: a pod made between the two list calls is judged by its
// container's labels, and again once a list shows its sandbox.
func TestFilterIsAskedWithTheSandbox(t *testing.T) {
	for _, test := range []struct {
		name   string
		passes func(PodMeta) bool
		app    string
		first  int
		want   int
	}{
		{"accepted with its labels", func(p PodMeta) bool { return p.Labels["app"] == "web" }, "web", 0, 1},
		{"refused with its labels", func(p PodMeta) bool { return p.Labels["app"] != "db" }, "db", 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &stub{containers: []*runtimeapi.Container{container("c", "s", "u", created)}}
			c := serve(t, s, Config{Filter: test.passes})
			first := mustList(t, c, 0)
			if len(first.Pods) != test.first || first.Total != test.first {
				t.Fatalf("without a sandbox: %+v", first)
			}
			s.set(func() { s.sandboxes = []*runtimeapi.PodSandbox{inNamespace("s", "u", "ns", test.app)} })
			delta := mustList(t, c, first.Revision)
			if len(delta.Pods) != test.want || delta.Total != test.want || len(delta.Gone) != test.first {
				t.Errorf("the difference with the sandbox: %+v", delta)
			}
			if all := mustList(t, c, 0); len(all.Pods) != test.want || all.Total != test.want {
				t.Errorf("everything with the sandbox: %+v", all)
			}
			s.on("GetContainerEvents", raw(encode(&runtimeapi.ContainerEventResponse{
				ContainerId:        "c",
				ContainerEventType: 1,
				ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer("c", "u", running)},
			})))
			claims := 0
			for _, err := range c.Events(t.Context()) {
				if err == nil {
					claims++
				}
			}
			if claims != test.want {
				t.Errorf("an event without a sandbox makes %d claims", claims)
			}
			s.set(func() { s.sandboxes, s.containers = nil, nil })
			if all := mustList(t, c, 0); len(all.Pods) != 0 || all.Total != 0 {
				t.Errorf("the end: %+v", all)
			}
		})
	}
}

// TestFilterOfEventsWithoutAUsableSandbox: an event about a refused pod makes no claim, though its
// sandbox cannot be read.
func TestFilterOfEventsWithoutAUsableSandbox(t *testing.T) {
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{inNamespace("s", "u", "kube-system", "")}}
	c := serve(t, s, Config{Filter: func(p PodMeta) bool { return p.Namespace == "shop" }})
	mustList(t, c, 0)
	s.on("GetContainerEvents", raw(encode(&runtimeapi.ContainerEventResponse{
		ContainerId:        "c",
		ContainerEventType: 1,
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{},
		ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer("c", "u", running)},
	})))
	for claim, err := range c.Events(t.Context()) {
		if err == nil {
			t.Errorf("a claim: %+v", claim.Item)
		}
	}
}
