// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// bare is a sandbox made by crictl: with metadata, without labels.
func bare(id, uid string) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: uid}}
}

func listPod(t *testing.T, c *Client, uid cache.UID) map[string]pleg.Phase {
	t.Helper()
	pod := must(c.ListPod(t.Context(), uid))(t)
	if pod.UID != uid {
		t.Errorf("ListPod of %s returned %s", uid, pod.UID)
	}
	found := map[string]pleg.Phase{}
	for _, item := range pod.Items {
		if _, twice := found[item.ID]; twice {
			t.Errorf("%s is listed twice", item.ID)
		}
		found[item.ID] = item.Phase
	}
	return found
}

// TestListPodWithoutLabels finds a pod made by crictl by the last List, where the label filter
// fails.
func TestListPodWithoutLabels(t *testing.T) {
	s := &stub{
		sandboxes: []*runtimeapi.PodSandbox{
			bare("s1", "u1"), bare("s2", ""), sandbox("s3", "u3", ready),
			{Id: "s4", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u4"}, Labels: map[string]string{labelPodUID: "u3"}}, // says two things
		},
		containers: []*runtimeapi.Container{
			container("c1", "s1", "", running), container("c2", "s2", "", exited),
			container("c3", "s3", "u3", running), container("d3", "s3", "", created), // a sandbox of two without labels
		},
	}
	c := serve(t, s, Config{})
	if found := listPod(t, c, "u1"); len(found) != 0 {
		t.Errorf("before any List: %v", found)
	}
	l := mustList(t, c, 0)
	want := map[cache.UID]map[string]pleg.Phase{
		"u1": {"s1": pleg.PhaseRunning, "c1": pleg.PhaseRunning},
		"s2": {"s2": pleg.PhaseRunning, "c2": pleg.PhaseExited},
		"u3": {"s3": pleg.PhaseRunning, "c3": pleg.PhaseRunning, "d3": pleg.PhaseCreated},
		"u4": {"s4": pleg.PhaseRunning},
	}
	for uid, items := range want {
		if d := cmp.Diff(items, listPod(t, c, uid)); d != "" {
			t.Errorf("ListPod of %s: %s", uid, d)
		}
	}
	// Gone pods are forgotten.
	s.set(func() { s.sandboxes, s.containers = s.sandboxes[2:3], s.containers[2:3] })
	mustList(t, c, l.Revision)
	if n := len(c.unlabelled.listed); n != 0 {
		t.Errorf("%d pods are still found by ID: %v", n, c.unlabelled.listed)
	}
	before := c.Stats().Calls["ListPodSandbox"]
	listPod(t, c, "u3")
	if n := c.Stats().Calls["ListPodSandbox"] - before; n != 1 {
		t.Errorf("a labelled pod took %d calls of ListPodSandbox", n)
	}
}

// TestListPodOfManySandboxes lists a pod with too many sandboxes for single questions.
func TestListPodOfManySandboxes(t *testing.T) {
	s := &stub{containers: []*runtimeapi.Container{container("other", "s-other", "", running)}}
	s.sandboxes = append(s.sandboxes, bare("s-other", "u9"))
	want := map[string]pleg.Phase{}
	for i := range 3 * maxByID {
		id := fmt.Sprint(i)
		s.sandboxes = append(s.sandboxes, bare("s"+id, "u"))
		s.containers = append(s.containers, container("c"+id, "s"+id, "", running))
		want["s"+id], want["c"+id] = pleg.PhaseRunning, pleg.PhaseRunning
	}
	c := serve(t, s, Config{})
	mustList(t, c, 0)
	before := c.Stats().Calls
	if d := cmp.Diff(want, listPod(t, c, "u")); d != "" {
		t.Error(d)
	}
	if after := c.Stats().Calls; after["ListPodSandbox"]-before["ListPodSandbox"] != 1 || after["ListContainers"]-before["ListContainers"] != 1 {
		t.Errorf("calls before %v, after %v", before, after)
	}
}

// TestListPodAfterAnEvent finds a pod made by crictl after the last List, by an event, until the
// lists know better.
func TestListPodAfterAnEvent(t *testing.T) {
	s := new(stub)
	c := serve(t, s, Config{})
	s.on("GetContainerEvents", raw(encode(&runtimeapi.ContainerEventResponse{
		ContainerId:      "s1",
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u1"}},
	})))
	l := mustList(t, c, 0)
	s.set(func() {
		s.sandboxes = append(s.sandboxes, bare("s1", "u1"))
		s.containers = append(s.containers, container("c1", "s1", "", running))
	})
	for claim, err := range c.Events(t.Context()) {
		if err == nil && claim.Item != (pleg.Item{ID: "s1", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}) {
			t.Errorf("claim: %+v", claim)
		}
	}
	want := map[string]pleg.Phase{"s1": pleg.PhaseRunning, "c1": pleg.PhaseRunning}
	if d := cmp.Diff(want, listPod(t, c, "u1")); d != "" {
		t.Errorf("after the event: %s", d)
	}
	s.on("ListContainers", failing(codes.Unknown, "no list"))
	for range 3 {
		if _, err := c.List(t.Context(), l.Revision); status.Code(err) != codes.Unknown {
			t.Fatalf("List: %v", err)
		}
	}
	if n := len(c.unlabelled.olderHints) + len(c.unlabelled.hinted); n != 1 {
		t.Errorf("%d hints are left after lists that failed", n)
	}
	s.on("ListContainers", nil)
	for range 3 {
		l = mustList(t, c, l.Revision)
		if d := cmp.Diff(want, listPod(t, c, "u1")); d != "" {
			t.Errorf("after a List: %s", d)
		}
	}
	if len(c.unlabelled.hinted)+len(c.unlabelled.olderHints) != 0 {
		t.Errorf("hints are kept: %v %v", c.unlabelled.hinted, c.unlabelled.olderHints)
	}
	for i := range 2 * maxHints {
		c.unlabelled.hint(cache.UID(fmt.Sprint("u", i)), "s")
	}
	if n := len(c.unlabelled.hinted); n > maxHints {
		t.Errorf("%d hints are kept", n)
	}
}

// TestListSeesASandboxCreatedInBetween lists an unlabelled container with a sandbox created after
// the list of sandboxes.
func TestListSeesASandboxCreatedInBetween(t *testing.T) {
	s := &stub{containers: []*runtimeapi.Container{
		container("c1", "s1", "", running), container("c2", "s2", "u2", running), container("c3", "never", "", running),
	}}
	c := serve(t, s, Config{})
	s.on("ListContainers", answering(func(r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
		s.set(func() {
			if len(s.sandboxes) == 0 {
				s.sandboxes = append(s.sandboxes, bare("s1", "u1"))
			}
		})
		return s.listContainers(r)
	}))
	l := mustList(t, c, 0)
	want := []pleg.Pod{
		{UID: "u1", Name: "n", Namespace: "ns", Items: []pleg.Item{{ID: "c1", Phase: pleg.PhaseRunning, Name: "name-c1"}, {ID: "s1", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}}},
		{UID: "u2", Name: "pod-u2", Namespace: "ns", Items: []pleg.Item{{ID: "c2", Phase: pleg.PhaseRunning, Name: "name-c2"}}},
	}
	if d := cmp.Diff(want, l.Pods); d != "" {
		t.Error(d)
	}
	if n := c.Stats().Unattributed; n != 1 {
		t.Errorf("%d containers are unattributed", n)
	}
	calls := c.Stats().Calls["ListPodSandbox"]
	if calls != 2 {
		t.Errorf("the sandboxes were listed %d times", calls)
	}
	mustList(t, c, l.Revision) // the unattributed container is known: no reason to ask twice
	if n := c.Stats().Calls["ListPodSandbox"]; n != calls+1 {
		t.Errorf("the sandboxes were listed %d times more", n-calls)
	}
	// The sandbox goes before its container: the container stays with its pod.
	s.set(func() { s.sandboxes = append(s.sandboxes[:0], bare("other", "u9")) })
	next := mustList(t, c, 0)
	if d := cmp.Diff([]pleg.Item{{ID: "c1", Phase: pleg.PhaseRunning, Name: "name-c1"}}, next.Pods[0].Items); d != "" || next.Pods[0].UID != "u1" {
		t.Errorf("after the sandbox went: %+v", next.Pods)
	}
}

// TestListWaitsItsTurn checks that a second List honours its context while waiting.
func TestListWaitsItsTurn(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := new(stub)
	c := serve(t, s, Config{})
	s.on("ListContainers", func(c *call) error {
		close(entered)
		<-leave
		return c.send(nil)
	})
	done := make(chan error)
	go func() {
		_, err := c.List(context.Background(), 0)
		done <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.List(ctx, 0); err == nil {
		t.Error("the second List did not wait")
	}
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestOneIDOfTwoKinds: an ID is a sandbox's or a container's, and the sandbox stands: in the list
// of its pod as in the list of everything.
func TestOneIDOfTwoKinds(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("x", "u", ready)},
		containers: []*runtimeapi.Container{container("x", "x", "u", exited)},
	}
	c := serve(t, s, Config{})
	want := mustList(t, c, 0).Pods[0].Items
	for range 20 { // the calls are answered in either order
		if pod := must(c.ListPod(t.Context(), "u"))(t); !slices.Equal(pod.Items, want) {
			t.Fatalf("ListPod shows %+v, List %+v", pod.Items, want)
		}
	}
	found := podBuilder{at: make(map[string]int)}
	found.add(pleg.Item{ID: "x", Kind: pleg.Container, Phase: pleg.PhaseExited}, nil, nil)
	found.add(pleg.Item{ID: "x", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, nil, nil)
	found.add(pleg.Item{ID: "x", Kind: pleg.Container, Phase: pleg.PhaseExited}, nil, nil)
	if !slices.Equal(found.pod.Items, want) {
		t.Errorf("a sandbox that comes second: %+v", found.pod.Items)
	}
}

// TestListPodCountsWhatItLeavesOut: items without a valid ID.
func TestListPodCountsWhatItLeavesOut(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready), sandbox("", "u", ready)},
		containers: []*runtimeapi.Container{container("", "s", "u", exited)},
	}
	c := serve(t, s, Config{})
	must(c.ListPod(t.Context(), "u"))(t)
	if n := c.Stats().Malformed; n != 2 {
		t.Errorf("%d items are counted, want 2", n)
	}
}

// TestASecondListOfSandboxesTakesAnID: a container that the listing does not show is gone, though a
// second list of the sandboxes, for a container without a pod, has taken the ID of another.
func TestASecondListOfSandboxesTakesAnID(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready)},
		containers: []*runtimeapi.Container{container("old", "s", "u", running), container("x", "s", "u", running)},
	}
	c := serve(t, s, Config{})
	mustList(t, c, 0)
	lists := 0
	s.on("ListPodSandbox", func(c *call) error {
		lists++
		items := []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}
		if lists > 1 {
			items = append(items, sandbox("x", "u", ready), sandbox("s2", "u2", ready))
		}
		return c.send(encode(&runtimeapi.ListPodSandboxResponse{Items: items}))
	})
	s.set(func() {
		s.containers = []*runtimeapi.Container{container("x", "s", "u", running), container("y", "s2", "", running)}
	})
	listing := mustList(t, c, 0)
	if lists != 2 || len(listing.Pods) != 2 {
		t.Errorf("%d lists of the sandboxes, %d pods", lists, len(listing.Pods))
	}
	for _, pod := range listing.Pods {
		if slices.ContainsFunc(pod.Items, func(it pleg.Item) bool { return it.ID == "old" }) {
			t.Errorf("a container that is gone is listed: %+v", pod)
		}
	}
}
