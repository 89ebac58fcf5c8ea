// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// view is a listing as a plain value: the phase of each item, by pod and ID.
type view map[cache.UID]map[string]pleg.Item

// The phases of the CRI's states. PhaseUnknown is that of any other state.
var (
	sandboxPhases   = map[runtimeapi.PodSandboxState]pleg.Phase{ready: pleg.PhaseRunning, notReady: pleg.PhaseExited}
	containerPhases = map[runtimeapi.ContainerState]pleg.Phase{created: pleg.PhaseCreated, running: pleg.PhaseRunning, exited: pleg.PhaseExited}
)

// goodID reports whether an item or a pod can have the ID.
func goodID(id string) bool { return id != "" && len(id) <= maxID && utf8.ValidString(id) }

// ownerOf returns the UID of a sandbox's pod, from a list or a status.
func ownerOf(s interface {
	GetId() string
	GetMetadata() *runtimeapi.PodSandboxMetadata
	GetLabels() map[string]string
}) string {
	return cmp.Or(s.GetMetadata().GetUid(), s.GetLabels()[labelPodUID], s.GetId())
}

// decodeList decodes a listing with the generated decoder, in the plainest way.
func decodeList(sandboxes, containers []byte) (v view, strays []string, invalid error) {
	var s runtimeapi.ListPodSandboxResponse
	var c runtimeapi.ListContainersResponse
	if err := cmp.Or(proto.Unmarshal(sandboxes, &s), proto.Unmarshal(containers, &c)); err != nil {
		return nil, nil, err
	}
	type placed struct {
		pod  cache.UID
		item pleg.Item
	}
	sandboxAt, containerAt := map[string]placed{}, map[string]placed{}
	for _, p := range s.Items {
		uid := ownerOf(p)
		if !goodID(p.Id) || !goodID(uid) {
			continue
		}
		phase := max(sandboxPhases[p.State], sandboxAt[p.Id].item.Phase)
		sandboxAt[p.Id] = placed{cache.UID(uid), pleg.Item{ID: p.Id, Kind: pleg.Sandbox, Phase: phase}}
	}
	for _, p := range c.Containers {
		uid := p.Labels[labelPodUID]
		if _, sandbox := sandboxAt[p.Id]; sandbox || !goodID(p.Id) || uid != "" && !goodID(uid) {
			continue
		}
		pod := cache.UID(uid)
		if uid == "" && goodID(p.PodSandboxId) {
			pod = sandboxAt[p.PodSandboxId].pod
		}
		phase := max(containerPhases[p.State], containerAt[p.Id].item.Phase)
		containerAt[p.Id] = placed{pod, pleg.Item{ID: p.Id, Kind: pleg.Container, Phase: phase}}
	}
	v = view{}
	for _, at := range []map[string]placed{sandboxAt, containerAt} {
		for id, p := range at {
			if p.pod == "" {
				strays = append(strays, id)
				continue
			}
			if v[p.pod] == nil {
				v[p.pod] = map[string]pleg.Item{}
			}
			v[p.pod][fmt.Sprint(p.item.Kind, " ", id)] = p.item
		}
	}
	return v, strays, nil
}

// apply brings v up to date with a listing.
func (v view) apply(t *testing.T, l pleg.Listing) view {
	if !l.Delta {
		v = view{}
	} else {
		v = maps.Clone(v)
	}
	for _, p := range l.Pods {
		items := map[string]pleg.Item{}
		for _, i := range p.Items {
			i.Name = "" // any of several owners in a broken list
			items[fmt.Sprint(i.Kind, " ", i.ID)] = i
		}
		if len(items) != len(p.Items) || len(items) == 0 {
			t.Errorf("pod %q is listed with %d items, %d of them different", p.UID, len(p.Items), len(items))
		}
		v[p.UID] = items
	}
	for _, uid := range l.Gone {
		if v[uid] == nil {
			t.Errorf("pod %q is gone and never was there", uid)
		}
		delete(v, uid)
	}
	if len(v) != l.Total {
		t.Errorf("the listing has a total of %d pods, there are %d", l.Total, len(v))
	}
	return v
}

// without returns v without the containers that the present listing alone cannot attribute: an
// index may remember their pods.
func (v view) without(strays []string) view {
	out := view{}
	for uid, items := range v {
		kept := map[string]pleg.Item{}
		for key, item := range items {
			if item.Kind == pleg.Sandbox || !slices.Contains(strays, item.ID) {
				kept[key] = item
			}
		}
		if len(kept) > 0 {
			out[uid] = kept
		}
	}
	return out
}

// list feeds a listing to an index.
func (x *index) list(sandboxes, containers mem.BufferSlice, since pleg.Revision, byID *unlabelled) (pleg.Listing, bool) {
	x.begin()
	var walker segments
	if !walker.walk(sandboxes, itemsField, x.sandbox) || !walker.walk(containers, itemsField, x.container) {
		return pleg.Listing{}, false
	}
	return x.commit(since, byID), true
}

// checkLists feeds a sequence of listings to an index and to the reference.
func checkLists(t *testing.T, size int, lists ...[2][]byte) {
	x, byID := newIndex(), new(unlabelled)
	have := view{}
	var revision pleg.Revision
	for i, l := range lists {
		want, strays, invalid := decodeList(l[0], l[1])
		listing, ok := x.list(cut(l[0], size), cut(l[1], size), revision, byID)
		if !ok {
			if invalid == nil {
				t.Fatalf("listing %d is valid and was refused", i)
			}
			continue
		}
		if revision == 0 && invalid != nil && !notUTF8(invalid) { // later, unchanged items are not checked
			t.Fatalf("listing %d is taken, and the generated decoder refuses it: %v", i, invalid)
		}
		if listing.Delta != (revision != 0) {
			t.Errorf("listing %d: delta is %v since revision %d", i, listing.Delta, revision)
		}
		if last := lists[max(i-1, 0)]; i > 0 && invalid == nil && x.duplicates == 0 && bytes.Equal(l[0], last[0]) && bytes.Equal(l[1], last[1]) && len(listing.Pods)+len(listing.Gone) > 0 {
			t.Errorf("listing %d repeats the one before and differs: %v", i, listing)
		}
		revision = listing.Revision
		have = have.apply(t, listing)
		if invalid != nil {
			continue // the generated decoder refuses invalid UTF-8 anywhere
		}
		if d := gocmp.Diff(want, have.without(strays)); d != "" {
			t.Fatalf("listing %d, want and have: %s", i, d)
		}
		x.check(t)
	}
}

// check verifies the index's invariants between listings.
func (x *index) check(t *testing.T) {
	hidden := 0
	for id, s := range x.sandboxes {
		if id != s.id {
			t.Errorf("sandbox %q is kept as %q", s.id, id)
		}
		if !s.listed {
			hidden++
			if len(s.dependents) == 0 {
				t.Errorf("sandbox %q is kept for nothing", id)
			}
		}
	}
	if hidden != x.unlisted || len(x.dirty) != 0 {
		t.Errorf("%d hidden sandboxes counted as %d, %d pods left dirty", hidden, x.unlisted, len(x.dirty))
	}
	for uid, p := range x.pods {
		if uid != p.uid || p.dirty || len(p.sandboxes)+len(p.containers) == 0 {
			t.Errorf("pod %q is kept as %q with %d and %d items, dirty %v", p.uid, uid, len(p.sandboxes), len(p.containers), p.dirty)
		}
	}
	for id, c := range x.containers {
		if id != c.id || c.removed {
			t.Errorf("container %q is kept as %q, removed %v", c.id, id, c.removed)
		}
	}
	for c := range x.unattributed {
		if c.pod != nil || x.containers[c.id] != c {
			t.Errorf("container %q is a stray and is not", c.id)
		}
	}
}

// randomNode returns listings with every possible flaw.
func randomNode(r *rand.Rand) (*runtimeapi.ListPodSandboxResponse, *runtimeapi.ListContainersResponse) {
	var s runtimeapi.ListPodSandboxResponse
	var c runtimeapi.ListContainersResponse
	pick := func(prefix string, n int) string {
		if r.IntN(20) == 0 {
			return ""
		}
		return fmt.Sprint(prefix, r.IntN(n))
	}
	labels := func() map[string]string {
		if r.IntN(3) == 0 {
			return map[string]string{"a": "b"}
		}
		return podLabelsOf(pick("u", 6))
	}
	for range r.IntN(8) {
		p := &runtimeapi.PodSandbox{
			Id: pick("s", 8), State: runtimeapi.PodSandboxState(r.IntN(3)), Labels: labels(),
			Annotations: map[string]string{"note": "of no use to the index"},
		}
		if r.IntN(4) > 0 {
			p.Metadata = &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: pick("u", 6), Attempt: r.Uint32()}
		}
		s.Items = append(s.Items, p)
	}
	for range r.IntN(12) {
		id := pick("c", 12)
		if r.IntN(8) == 0 {
			id = pick("s", 8) // an ID is a sandbox's or a container's: the sandbox stands
		}
		c.Containers = append(c.Containers, &runtimeapi.Container{
			Id: id, PodSandboxId: pick("s", 8), State: runtimeapi.ContainerState(r.IntN(5)), Labels: labels(),
			Image: &runtimeapi.ImageSpec{Image: strings.Repeat("i", r.IntN(300))}, Metadata: &runtimeapi.ContainerMetadata{Name: strings.Repeat("x", 1+r.IntN(2)*r.IntN(2*maxText))},
		})
	}
	return &s, &c
}

// FuzzLists feeds any bytes to an index: a listing three times, so that its sum is known, then
// another listing, and the first again, twice.
func FuzzLists(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		s, c := randomNode(r)
		otherS, otherC := randomNode(r)
		f.Add(mangled(r, s), mangled(r, c), mangled(r, otherS), mangled(r, otherC), uint16(1+r.IntN(300)))
	}
	f.Add(bytes.Repeat([]byte{0xff}, 10), []byte{}, []byte{}, []byte{}, uint16(3)) // a tag without end
	// An ID is a sandbox's, is a container's in a listing that breaks off, and is a sandbox's again.
	both := encode(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "s", Labels: podLabelsOf("u2")}}})
	f.Add(encode(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s", Labels: podLabelsOf("u1")}}}), both,
		[]byte{}, append(bytes.Clone(both), 0xff), uint16(100))
	// An ID is a container's and becomes a sandbox's, and the container after it is gone.
	three := encode(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "a", Labels: podLabelsOf("u2")}, {Id: "b", Labels: podLabelsOf("u2")}, {Id: "c", Labels: podLabelsOf("u2")}}})
	two := encode(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "a", Labels: podLabelsOf("u2")}, {Id: "b", Labels: podLabelsOf("u2")}}})
	f.Add([]byte{}, three, encode(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "b", Labels: podLabelsOf("u1")}}}), two, uint16(100))
	f.Fuzz(func(t *testing.T, sandboxes, containers, otherSandboxes, otherContainers []byte, size uint16) {
		a, b := [2][]byte{sandboxes, containers}, [2][]byte{otherSandboxes, otherContainers}
		checkLists(t, int(size), a, a, a, b, a, a)
	})
}
