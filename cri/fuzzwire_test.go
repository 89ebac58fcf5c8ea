// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// FuzzListsBySeed feeds a sequence of listings, each in a new order and in the batches of a
// streaming list, to an index and to the generated decoder. Unlike the targets that take bytes,
// FuzzListsBySeed keeps most messages well-formed, in every encoding, and so goes deeper. Some
// items stay unchanged.
func FuzzListsBySeed(f *testing.F) {
	for seed := range uint64(1500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 11))
		sandboxes, containers := randomNode(r)
		var lists [][2][]byte
		for range 2 + r.IntN(5) {
			more, others := randomNode(r)
			for _, p := range more.Items {
				if i := r.IntN(len(sandboxes.Items) + 1); i < len(sandboxes.Items) && r.IntN(2) == 0 {
					sandboxes.Items[i] = p
				}
			}
			for _, c := range others.Containers {
				if i := r.IntN(len(containers.Containers) + 1); i < len(containers.Containers) && r.IntN(2) == 0 {
					containers.Containers[i] = c
				}
			}
			shuffle(r.Shuffle, sandboxes.Items)
			shuffle(r.Shuffle, containers.Containers)
			pair := [2][]byte{inSomeForm(r, sandboxes), inSomeForm(r, containers)}
			if cut := &pair[r.IntN(2)]; r.IntN(8) == 0 && len(*cut) > 0 { // a listing broken off halfway
				*cut = (*cut)[:r.IntN(len(*cut))]
			}
			if mutated := pair[r.IntN(2)]; r.IntN(2) == 0 && len(mutated) > 0 {
				for range 1 + r.IntN(3) {
					mutated[r.IntN(len(mutated))] = byte(r.Uint32())
				}
			}
			for range 1 + r.IntN(2) {
				lists = append(lists, pair)
			}
		}
		checkLists(t, 1+r.IntN(400), lists...)
	})
}

// inSomeForm encodes a message as a serializer would, or, a third of the time, in a nearly
// equivalent way.
func inSomeForm(r *rand.Rand, m proto.Message) []byte {
	if r.IntN(3) == 0 {
		return mangled(r, m)
	}
	return encode(m)
}

// FuzzQuick compares fastItem with the full parsers, which must read the same from every accepted
// item.
func FuzzQuick(f *testing.F) {
	r := rand.New(rand.NewPCG(12, 13))
	for range 40 {
		s, c := randomNode(r)
		for _, item := range s.Items {
			f.Add(inSomeForm(r, item))
		}
		for _, item := range c.Containers {
			f.Add(inSomeForm(r, item))
		}
	}
	f.Add([]byte{0x0a, 0x80, 0x80, 0x80, 0x00})                 // a length in more bytes than need be
	f.Add([]byte{0x0d, 0, 0, 0, 0})                             // the ID's number, of another type
	f.Add([]byte{0x0a, 1, 's', 3 << 3, 0x81, 0})                // the state of a sandbox in more bytes than need be
	f.Add([]byte{0x0a, 1, 'c', 6 << 3, 0x81, 0})                // that of a container
	f.Add([]byte{0x12, 3, 0x0a, 1, 'n', 0x12, 3, 0x12, 1, 'u'}) // metadata in parts
	f.Fuzz(func(t *testing.T, raw []byte) {
		same := func(q fastItem, id, field2, uid []byte, state int32) {
			if !bytes.Equal(q.id, id) || !bytes.Equal(q.field2, field2) || !bytes.Equal(q.uid, uid) || int32(q.state) != state {
				t.Fatalf("quick reads %+v, careful %q, %q, %q, %d", q, id, field2, uid, state)
			}
		}
		var q fastItem
		var s sandboxItem
		if s.readListed(raw) && q.read(raw, fastSandboxTags) {
			same(q, s.id, s.metaRaw, s.labels.uid, s.state)
		}
		q = fastItem{}
		var c containerItem
		if c.readListed(raw) && q.read(raw, fastContainerTags) {
			same(q, c.id, c.sandbox, c.labels.uid, int32(c.state))
		}
	})
}

// TestUsualItemsAreQuick wants the items of real runtimes to be unchanged by the fast read alone.
func TestUsualItemsAreQuick(t *testing.T) {
	sandbox, containers := nodePod(1, 2, running)
	var q fastItem
	if !q.read(encode(sandbox), fastSandboxTags) || string(q.id) != sandbox.Id || string(q.uid) != sandbox.Labels[labelPodUID] {
		t.Errorf("a sandbox: %+v", q)
	}
	q = fastItem{}
	if c := containers[0]; !q.read(encode(c), fastContainerTags) || string(q.id) != c.Id || string(q.field2) != sandbox.Id || q.state != byte(running) {
		t.Errorf("a container: %+v", q)
	}
}

// FuzzListPod compares the list of a pod with the generated decoder's.
func FuzzListPod(f *testing.F) {
	r := rand.New(rand.NewPCG(16, 17))
	for range 20 {
		s, c := randomNode(r)
		f.Add(inSomeForm(r, s), inSomeForm(r, c), uint16(1+r.IntN(300)))
	}
	f.Fuzz(func(t *testing.T, sandboxes, containers []byte, size uint16) {
		for uid, among := range map[cache.UID][]string{"u1": nil, "u2": {"s1", "s3"}, "s4": {"s4"}} {
			found := podBuilder{client: new(Client), uid: uid, pod: pleg.Pod{UID: uid}, at: make(map[string]int)}
			var walker segments
			ok := walker.walk(cut(sandboxes, int(size)), itemsField, found.sandbox) &&
				walker.walk(cut(containers, int(size)), itemsField, func(raw []byte) bool { return found.container(raw, among) })
			want, valid := decodePod(sandboxes, containers, uid, among)
			if !valid {
				continue
			}
			if !ok {
				t.Fatal("a valid list was refused")
			}
			have := make(map[string]pleg.Item)
			for _, item := range found.pod.Items {
				item.Name = ""
				have[item.ID] = item
			}
			if d := gocmp.Diff(want, have, cmpopts.EquateEmpty()); d != "" || len(have) != len(found.pod.Items) {
				t.Fatalf("pod %s, want and have: %s", uid, d)
			}
		}
	})
}

// decodePod decodes the lists of a pod with the generated decoder, in the plainest way. It returns
// false for invalid messages.
func decodePod(sandboxes, containers []byte, uid cache.UID, among []string) (map[string]pleg.Item, bool) {
	var s runtimeapi.ListPodSandboxResponse
	var c runtimeapi.ListContainersResponse
	if proto.Unmarshal(sandboxes, &s) != nil || proto.Unmarshal(containers, &c) != nil {
		return nil, false
	}
	items := make(map[string]pleg.Item)
	add := func(item pleg.Item) {
		if old, ok := items[item.ID]; ok { // an ID belongs to the first item with the ID
			item.Kind, item.Phase = old.Kind, max(old.Phase, item.Phase)
		}
		items[item.ID] = item
	}
	for _, p := range s.Items {
		if goodID(p.Id) && ownerOf(p) == string(uid) {
			add(pleg.Item{ID: p.Id, Kind: pleg.Sandbox, Phase: sandboxPhases[p.State]})
		}
	}
	for _, p := range c.Containers {
		owner := p.Labels[labelPodUID]
		if goodID(p.Id) && (owner == string(uid) || owner == "" && slices.Contains(among, p.PodSandboxId)) {
			add(pleg.Item{ID: p.Id, Phase: containerPhases[p.State]})
		}
	}
	return items, true
}

// FuzzStatusAnswer compares the accepted part of answers to status calls with the generated
// decoder's result.
func FuzzStatusAnswer(f *testing.F) {
	r := rand.New(rand.NewPCG(18, 19))
	for range 20 {
		e := fullEvent(r)
		if e.PodSandboxStatus != nil {
			f.Add(inSomeForm(r, &runtimeapi.PodSandboxStatusResponse{Status: e.PodSandboxStatus, ContainersStatuses: e.ContainersStatuses, Info: map[string]string{"a": "b"}}))
		}
		for _, c := range e.ContainersStatuses {
			f.Add(inSomeForm(r, &runtimeapi.ContainerStatusResponse{Status: c, Info: map[string]string{"a": "b"}}))
		}
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		var s runtimeapi.PodSandboxStatusResponse
		invalid := proto.Unmarshal(reply, &s)
		client := &Client{config: Config{Annotations: true}}
		raw, brought, err := client.readStatus(podSandboxStatus, s.GetStatus().GetId(), reply)
		whole := s.Status != nil && isWhole(s.Status.Metadata, s.Status.CreatedAt)
		if client.counter.malformed.Load() > 0 && invalid != nil {
			// a malformed container status beside a sandbox's is left out and read by its ID; the
			// decoder refuses the whole answer
			return
		}
		checkAnswer(t, invalid, err, whole && proto.Size(s.Status.Metadata) > 0, whole)
		if err == nil && invalid == nil {
			got, ok := decodeSandbox(raw)
			if d := gocmp.Diff(wantSandbox(s.Status), got, cmpopts.EquateEmpty()); d != "" || !ok {
				t.Fatal(d)
			}
			for _, raw := range brought {
				var m runtimeapi.ContainerStatus
				if err := proto.Unmarshal(raw, &m); err != nil {
					t.Fatalf("a status was brought along that cannot be decoded: %v", err)
				}
			}
		}
		var c runtimeapi.ContainerStatusResponse
		invalid = proto.Unmarshal(reply, &c)
		raw, _, err = client.readStatus(containerStatus, c.GetStatus().GetId(), reply)
		whole = c.Status != nil && isWhole(c.Status.Metadata, c.Status.CreatedAt)
		checkAnswer(t, invalid, err, whole && proto.Size(c.Status.Metadata) > 0, whole)
		if err == nil && invalid == nil {
			got, ok := decodeContainer(raw)
			if d := gocmp.Diff(wantContainer(c.Status), got, cmpopts.EquateEmpty()); d != "" || !ok {
				t.Fatal(d)
			}
		}
	})
}

// checkAnswer verifies that an answer is accepted or refused as required; invalid is the generated
// decoder's error.
func checkAnswer(t *testing.T, invalid, err error, must, may bool) {
	t.Helper()
	switch {
	case invalid == nil && must && err != nil:
		t.Fatalf("a whole answer is refused: %v", err)
	case invalid == nil && !may && err == nil:
		t.Fatal("an answer is taken that is not whole")
	case invalid != nil && !notUTF8(invalid) && err == nil:
		t.Fatalf("an answer is taken that the generated decoder refuses: %v", invalid)
	}
}
