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
func statusOfEvent(raw []byte) (*PodStatus, error) {
	p := newEventBuffer()
	p.fill(mem.BufferSlice{mem.SliceBuffer(raw)})
	claim, _ := claimOf(new(Client), new(interner), p)
	defer claim.Release()
	return claim.Status()
}

// Results taken before the release do not change when the memory goes to another event.
func TestReleasedClaimLeavesItsStatusAlone(t *testing.T) {
	c, names := new(Client), new(interner)
	first, p := received(t, c, names, 1)
	status := must(first.Status())(t)
	pod, item, payload := first.Pod, first.Item, slices.Clone(first.Payload)
	// The rest checks the memory of a released claim outside the pool shared with other tests.
	for i := range *p.raw {
		(*p.raw)[i] = 0xff
	}
	clear(p.payload)
	p.pod = "another"

	again, _ := received(t, c, names, 1)
	want := must(again.Status())(t)
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
