// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// received is a claim made by Events, with the memory of its message.
func received(t *testing.T, c *Client, names *interner, pod int) (pleg.Claim[PodStatus], *eventBuffer) {
	t.Helper()
	raw := encode(nodeEvent(pod, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT))
	p := newEventBuffer()
	p.fill(mem.BufferSlice{mem.SliceBuffer(raw[:100]), mem.SliceBuffer(raw[100:])})
	if !bytes.Equal(p.message(), raw) {
		t.Fatal("the message was not received as it was sent")
	}
	claim, made := claimOf(c, names, p)
	if !made {
		t.Fatal("an event was not understood")
	}
	return claim, p
}

func claimOf(c *Client, names *interner, p *eventBuffer) (pleg.Claim[PodStatus], bool) {
	e, ok := readEvent(p.message())
	claim, made := c.claim(&e, names, p)
	return claim, ok && made
}

// statusOfEvent returns the status carried by an encoded event, as its claim does.
func statusOfEvent(raw []byte) (*PodStatus, error) { return statusOnto(nil, raw) }

// statusOnto returns the status carried by an encoded event, built on an earlier status.
func statusOnto(prev *PodStatus, raw []byte) (*PodStatus, error) {
	p := newEventBuffer()
	p.fill(mem.BufferSlice{mem.SliceBuffer(raw)})
	claim, _ := claimOf(new(Client), new(interner), p)
	defer claim.Release()
	return claim.Status(prev)
}

// Results taken before the release do not change when the memory goes to another event.
func TestReleasedClaimLeavesItsStatusAlone(t *testing.T) {
	c, names := new(Client), new(interner)
	first, p := received(t, c, names, 1)
	status := must(first.Status(nil))(t)
	pod, item, payload := first.Pod, first.Item, slices.Clone(first.Payload)
	// The rest checks the memory of a released claim outside the pool shared with other tests.
	for i := range *p.raw {
		(*p.raw)[i] = 0xff
	}
	clear(p.payload)
	p.pod = "another"

	again, _ := received(t, c, names, 1)
	want := must(again.Status(nil))(t)
	if d := gocmp.Diff(want.Containers(), status.Containers()); d != "" {
		t.Error(d)
	}
	if d := gocmp.Diff(want.Sandboxes(), status.Sandboxes()); d != "" {
		t.Error(d)
	}
	if pod != again.Pod || item != again.Item {
		t.Errorf("the claim was of %s, %v; now it is of %s, %v", pod, item, again.Pod, again.Item)
	}
	if d := gocmp.Diff(again.Payload, payload); d != "" {
		t.Error(d)
	}
}

// A released event buffer keeps no references.
func TestParcelIsEmptiedBeforeItIsUsedAgain(t *testing.T) {
	p := newEventBuffer()
	p.fill(mem.BufferSlice{mem.SliceBuffer("x")})
	p.pod, p.payload = "u", make([]pleg.Item, 3, maxKeptPayload+1)
	p.release()
	if p.raw != nil || p.pod != "" || p.payload != nil {
		t.Errorf("a released parcel holds %+v", p)
	}
}

func TestInterner(t *testing.T) {
	var n interner
	same := func(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }
	event := []byte("an event about abc and more")
	first := n.intern(event[15:18])
	if first != "abc" || !same(first, n.intern([]byte("abc"))) {
		t.Errorf("abc became %q, and another string the second time", first)
	}
	copy(event[15:], "xyz")
	if first != "abc" {
		t.Errorf("the string shares the event's memory: %q", first)
	}
	for i := range 3 * internerSize {
		n.intern(fmt.Append(nil, i))
		if i%(internerSize/2) == 0 && !same(first, n.intern([]byte("abc"))) {
			t.Fatalf("a string in use was forgotten after %d others", i)
		}
	}
	if len(n.current)+len(n.previous) > 2*internerSize {
		t.Errorf("%d strings are kept", len(n.current)+len(n.previous))
	}
}

// TestPayloadStoresWhatItAdvances checks that a payload brings the statuses of the IDs in a later
// phase, and leaves all others as last read: the runtime may have looked at those before a change
// that the last read shows.
func TestPayloadStoresWhatItAdvances(t *testing.T) {
	limited := func(id string, state runtimeapi.ContainerState, limit int64) *runtimeapi.ContainerStatus {
		s := wholeContainer(id, "u", state)
		s.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit}}
		return s
	}
	sandbox := encode(sandboxStatus("s", "u", ready))
	for _, others := range []int{0, 2 * mapFrom} {
		was, brought := [][]byte{encode(limited("c1", running, 64))}, [][]byte{encode(limited("c1", exited, 65))}
		for i := range others + 1 {
			id := fmt.Sprintf("other%d", i)
			was = append(was, encode(limited(id, running, 128)))
			brought = append(brought, encode(limited(id, running, 64)))
		}
		slices.Reverse(brought)
		prev := must(statusOfEvent(eventOf("c1", sandbox, was...)))(t)
		next := must(statusOnto(prev, eventOf("c1", sandbox, brought...)))(t)
		if n := len(next.Containers()); n != others+2 {
			t.Fatalf("%d containers, want %d", n, others+2)
		}
		for _, c := range next.Containers() {
			phase, limit := pleg.PhaseRunning, int64(128)
			if c.ID == "c1" {
				phase, limit = pleg.PhaseExited, 65
			}
			if c.Phase != phase || c.Resources.MemoryLimit != limit {
				t.Errorf("%s is %v with a limit of %d, want %v with %d", c.ID, c.Phase, c.Resources.MemoryLimit, phase, limit)
			}
		}
		for _, c := range prev.Containers() {
			if c.Phase != pleg.PhaseRunning {
				t.Errorf("the earlier status changed: %v", prev)
			}
		}
	}
}

// TestThePartsOfAStatusAreFoundByKind: a sandbox and a container of one ID are found apart, among
// few parts and among many. Of a kind and an ID that stand there twice the first counts.
func TestThePartsOfAStatusAreFoundByKind(t *testing.T) {
	for _, others := range []int{0, 2 * mapFrom} {
		sandbox := encode(sandboxStatus("x", "u", ready))
		first := encode(wholeContainer("x", "u", running))
		messages := statusMessages{sandboxes: [][]byte{sandbox}, containers: [][]byte{first, encode(wholeContainer("x", "u", exited))}}
		for i := range others {
			messages.containers = append(messages.containers, encode(wholeContainer(fmt.Sprint("c", i), "u", running)))
		}
		x := indexParts(&PodStatus{encoded: &encodedStatus{statusMessages: messages}}, 2*mapFrom)
		if (x.at != nil) != (others > 0) {
			t.Fatalf("%d other parts are looked up in a map: %v", others, x.at != nil)
		}
		if got := x.find(partKey{pleg.Sandbox, "x"}); !slices.Equal(got, sandbox) {
			t.Errorf("beside %d others, the sandbox is %q", others, got)
		}
		if got := x.find(partKey{pleg.Container, "x"}); !slices.Equal(got, first) {
			t.Errorf("beside %d others, the container is %q", others, got)
		}
	}
}

// TestPayloadKeepsThePartsOfARead checks that a status built of an event has the bytes of the parts
// that a read has brought, and a copy of those that lie in one answer with others: the answer would
// stay in memory for one part.
func TestPayloadKeepsThePartsOfARead(t *testing.T) {
	sandbox := encode(sandboxStatus("s", "u", ready))
	c1 := encode(wholeContainer("c1", "u", running))
	c2 := encode(wholeContainer("c2", "u", running))
	exit := eventOf("c1", sandbox, encode(wholeContainer("c1", "u", exited)), c2)
	for _, shared := range []bool{false, true} {
		prev := must(statusOfEvent(eventOf("c1", sandbox, c1, c2)))(t)
		prev.encoded.shared = shared
		next := must(statusOnto(prev, exit))(t)
		was := prev.encoded.containers[1]
		is := next.encoded.containers[1]
		if !slices.Equal(was, is) || next.encoded.shared {
			t.Fatalf("the part that has not changed is %q, was %q", is, was)
		}
		if kept := &was[0] == &is[0]; kept == shared {
			t.Errorf("the part in an answer with others: %v, its bytes are kept: %v", shared, kept)
		}
	}
}

// TestPodOfAnEventWithABareSandbox: a sandbox with neither metadata nor labels does not tell its
// pod; the label of the event's container does, else that of another. Where none does the pod is
// not known, and is looked for: that it has the sandbox's ID, as with a client without UIDs, kept
// the sandbox from its pod until the next list.
func TestPodOfAnEventWithABareSandbox(t *testing.T) {
	c := serve(t, &stub{}, Config{})
	bare := &runtimeapi.PodSandboxStatus{Id: "s", CreatedAt: 1}
	for _, test := range []struct {
		want       cache.UID
		containers []*runtimeapi.ContainerStatus
	}{
		{"", nil},
		{"", []*runtimeapi.ContainerStatus{wholeContainer("c", "", running)}},
		{"other", []*runtimeapi.ContainerStatus{wholeContainer("d", "other", running)}},
		{"u", []*runtimeapi.ContainerStatus{wholeContainer("d", "other", running), wholeContainer("c", "u", running)}},
	} {
		e, ok := readEvent(encode(&runtimeapi.ContainerEventResponse{
			ContainerId:        "c",
			ContainerEventType: 1,
			PodSandboxStatus:   bare,
			ContainersStatuses: test.containers,
		}))
		claim, made := c.claim(&e, new(interner), newEventBuffer())
		if !ok || !made || claim.Pod != test.want {
			t.Errorf("with %d containers, the claim is about pod %q, want %q", len(test.containers), claim.Pod, test.want)
		}
		if known := claim.Pod != "" && claim.Status != nil; known != (test.want != "") {
			t.Errorf("the claim about pod %q has a status: %v", claim.Pod, claim.Status != nil)
		}
		if got := c.unlabelled.sandboxes(test.want); test.want != "" && !slices.Equal(got, []string{"s"}) {
			t.Errorf("pod %q is found by %q", test.want, got)
		}
	}
}
