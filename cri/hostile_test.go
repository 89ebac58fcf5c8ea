// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestMessageLimit wants the limit, the call and the remedy in the error.
func TestMessageLimit(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		s := &stub{streaming: streaming}
		for i := range 100 {
			s.sandboxes = append(s.sandboxes, sandbox(fmt.Sprint("s", i), fmt.Sprint("u", i), ready))
		}
		c := serve(t, s, Config{MaxMessageSize: 1000})
		_, err := c.List(t.Context(), 0)
		if !errors.Is(err, ErrMessageSize) || status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("List: %v", err)
		}
		wantError(t, err, "1000 bytes", "Config.MaxMessageSize", "PodSandbox")
	}
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}}
	_, err := serve(t, s, Config{}, grpc.MaxSendMsgSize(10)).List(t.Context(), 0)
	wantError(t, err, "runtime's own grpc send limit", "ListPodSandbox")
}

// TestNilFields: messages without anything in them.
func TestNilFields(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{{}, {Id: "s"}, {Id: strings.Repeat("x", maxID+1)}},
		containers: []*runtimeapi.Container{{}, {Id: "c"}, {Id: "d", PodSandboxId: "s"}, {Id: "e", Labels: map[string]string{labelPodUID: ""}, PodSandboxId: "who"}},
	}
	s.podSandboxStatus = func(string) (*runtimeapi.PodSandboxStatusResponse, error) {
		return &runtimeapi.PodSandboxStatusResponse{}, nil
	}
	s.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
		return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "other"}}, nil
	}
	c := serve(t, s, Config{})
	l := mustList(t, c, 0)
	if len(l.Pods) != 1 || l.Pods[0].UID != "s" || len(l.Pods[0].Items) != 2 {
		t.Errorf("List: %+v", l)
	}
	if st := c.Stats(); st.Unattributed != 2 || st.Malformed == 0 {
		t.Errorf("stats: %+v", st)
	}
	_, err := c.Inspect(t.Context(), pleg.Pod{UID: "s", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}}})
	wantError(t, err, "holds no status")
	_, err = c.Inspect(t.Context(), pleg.Pod{UID: "s", Items: []pleg.Item{{ID: "c"}}})
	wantError(t, err, `is about "other"`)
	if in, err := c.Inspect(t.Context(), pleg.Pod{UID: "s"}); err != nil || in.Status == nil || len(in.Pod.Items) != 0 {
		t.Errorf("Inspect of a pod without items: %+v, %v", in, err)
	}
	if _, err := c.ListPod(t.Context(), ""); err == nil {
		t.Error("ListPod of the empty UID worked")
	}
	_, err = c.ListPod(t.Context(), "\xff") // which is not UTF-8
	wantError(t, err, `\xff`)
}

// TestGarbage sends bytes outside protobuf, and streams with improper ends.
func TestGarbage(t *testing.T) {
	s := new(stub)
	c := serve(t, s, Config{})
	garbage := raw([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1})
	s.on("StreamPodSandboxes", garbage)
	s.on("GetContainerEvents", garbage)
	if _, err := c.List(t.Context(), 0); !errors.Is(err, ErrMalformed) {
		t.Errorf("List: %v", err)
	}
	for _, err := range c.Events(t.Context()) {
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("Events: %v", err)
		}
	}
	s.on("StreamPodSandboxes", func(c *call) error {
		batch := []byte(strings.Repeat("\x0a\x03\x0a\x01x", 10000))
		for {
			if err := c.send(batch); err != nil {
				return err
			}
		}
	})
	if _, err := c.List(t.Context(), 0); !errors.Is(err, ErrTooMany) {
		t.Errorf("List without end: %v", err)
	}
}

// TestEventsThatLackSomething counts missing parts of events, oversized events, old ends, and the
// events of an unknown type, which claim nothing, or, skipped, without an ID. Complete events and
// removals, which need show nothing, are not counted.
func TestEventsThatLackSomething(t *testing.T) {
	const stamp = int64(2e18)
	sandbox := sandboxStatus("s", "u", ready)
	ended := func(id string, ago time.Duration) []*runtimeapi.ContainerStatus {
		c := wholeContainer(id, "u", exited)
		c.FinishedAt = stamp - int64(ago)
		return []*runtimeapi.ContainerStatus{c}
	}
	const created, started, stopped, deleted, later = 0, 1, 2, 3, 4
	for _, test := range []struct {
		name       string
		kind       runtimeapi.ContainerEventType
		id         string
		sandbox    *runtimeapi.PodSandboxStatus
		containers []*runtimeapi.ContainerStatus

		incomplete, oversized, late, unknown, malformed uint64
	}{
		{name: "complete", kind: started, id: "c", sandbox: sandbox, containers: ended("c", 0)},
		{name: "a sandbox, which needs no containers", kind: created, id: "s", sandbox: sandbox},
		{name: "a removal", kind: deleted, id: "c"},
		{name: "no sandbox", kind: started, id: "c", containers: ended("c", 0), incomplete: 1},
		{name: "no containers", kind: started, id: "c", sandbox: sandbox, incomplete: 1},
		{name: "nothing", kind: stopped, id: "c", incomplete: 1},
		{name: "an end in time", kind: stopped, id: "c", sandbox: sandbox, containers: ended("c", 999*time.Millisecond)},
		{name: "an end told late", kind: stopped, id: "c", sandbox: sandbox, containers: ended("c", time.Second), late: 1},
		{name: "another one's end", kind: stopped, id: "c", sandbox: sandbox, containers: ended("d", time.Hour)},
		{name: "a start after an end", kind: started, id: "c", sandbox: sandbox, containers: ended("c", time.Hour)},
		{name: "too large for a kubelet", kind: deleted, id: strings.Repeat("x", 17<<20), oversized: 1, malformed: 1},
		{name: "of a later CRI", kind: later, id: "c", unknown: 1},
		{name: "of a negative type", kind: -1, id: "c", unknown: 1},
		{name: "without an ID", malformed: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := new(stub)
			c := serve(t, s, Config{})
			s.on("GetContainerEvents", raw(encode(&runtimeapi.ContainerEventResponse{
				ContainerId: test.id, ContainerEventType: test.kind, CreatedAt: stamp, PodSandboxStatus: test.sandbox, ContainersStatuses: test.containers,
			})))
			claims := uint64(0)
			for claim, err := range c.Events(t.Context()) {
				switch err {
				case nil:
					claims++
					if unknown := claim.Item.Phase == pleg.PhaseUnknown; unknown != (test.unknown > 0) {
						t.Errorf("claim %+v", claim.Item)
					}
				case io.EOF:
				default:
					t.Errorf("the stream ended with %v", err)
				}
			}
			if claims != 1-test.malformed {
				t.Errorf("%d claims", claims)
			}
			st := c.Stats()
			got := []uint64{st.IncompleteEvents, st.OversizedEvents, st.LateExits, st.UnknownEvents, st.Malformed}
			if want := []uint64{test.incomplete, test.oversized, test.late, test.unknown, test.malformed}; !slices.Equal(got, want) {
				t.Errorf("incomplete, oversized, late, unknown, malformed: %d, want %d", got, want)
			}
		})
	}
}

// TestUnknownStates counts states unknown to the CRI when read; in lists, once while the item stays
// unchanged. The CRI's own UNKNOWN is not counted.
func TestUnknownStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", 2)},
			containers: []*runtimeapi.Container{container("new", "s", "u", 4), container("unknown", "s", "u", runtimeapi.ContainerState_CONTAINER_UNKNOWN)},
			containerStatus: func(id string) (*runtimeapi.ContainerStatusResponse, error) {
				return &runtimeapi.ContainerStatusResponse{Status: wholeContainer(id, "u", -1)}, nil
			},
			podSandboxStatus: func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
				return &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(id, "u", ready)}, nil
			},
		}
		c := serve(t, s, Config{})
		counts := func(when string, want uint64) {
			t.Helper()
			if n := c.Stats().UnknownStates; n != want {
				t.Errorf("%s: %d unknown states, want %d", when, n, want)
			}
		}
		first := mustList(t, c, 0)
		counts("a list", 2)
		mustList(t, c, first.Revision)
		counts("the same once more", 2)
		pod := must(c.ListPod(t.Context(), "u"))(t)
		counts("the pod alone", 4)
		if _, err := c.Inspect(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		counts("statuses", 6)
	})
}

// allocated returns how many bytes a function allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestManyOccurrences: a singular message in many parts is merged in the time of its length.
func TestManyOccurrences(t *testing.T) {
	const parts = 64 << 10
	field := func(n protowire.Number, data ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), data)
	}
	attempt := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1)
	item := append(field(1, 's'), bytes.Repeat(field(2, attempt...), parts)...)
	event := append(field(1, 's'), bytes.Repeat(field(4, field(1, 's')...), parts)...)
	answer := bytes.Repeat(field(1, field(1, 's')...), parts)
	c := serve(t, &stub{}, Config{})
	for name, test := range map[string]struct {
		message []byte
		read    func([]byte)
	}{
		"the metadata of a sandbox": {item, func(b []byte) { new(sandboxItem).readListed(b) }},
		"the sandbox of an event":   {event, func(b []byte) { readEvent(b) }},
		"the status of an answer":   {answer, func(b []byte) { _, _, _ = c.readStatus(podSandboxStatus, "s", b) }},
	} {
		if got := allocated(func() { test.read(test.message) }); got > uint64(20*len(test.message)) {
			t.Errorf("%s, %d bytes, takes %d bytes of memory", name, len(test.message), got)
		}
	}
}

// TestManyContainersInAMessage: what no pod has as many of is not kept: an event with such a
// payload has none, and an answer about a sandbox is without its containers. Both are counted.
func TestManyContainersInAMessage(t *testing.T) {
	one := wholeContainer("c", "u", running)
	many := slices.Repeat([]*runtimeapi.ContainerStatus{one}, maxStatuses+1)
	sandbox := sandboxStatus("s", "u", ready)
	for _, n := range []int{maxStatuses, maxStatuses + 1} {
		c := serve(t, &stub{}, Config{})
		e, ok := readEvent(encode(&runtimeapi.ContainerEventResponse{
			ContainerId:        "c",
			ContainerEventType: 1,
			PodSandboxStatus:   sandbox,
			ContainersStatuses: many[:n],
		}))
		claim, made := c.claim(&e, new(interner), newEventBuffer())
		_, bundled, err := c.readStatus(podSandboxStatus, "s", encode(&runtimeapi.PodSandboxStatusResponse{
			Status:             sandbox,
			ContainersStatuses: many[:n],
		}))
		wantItems, wantBundled, wantMalformed := n+1, n, uint64(0)
		if n > maxStatuses {
			wantItems, wantBundled, wantMalformed = 0, 0, 2
		}
		if !ok || !made || claim.Pod != "u" || len(claim.Payload) != wantItems {
			t.Errorf("an event with %d containers: pod %q, a payload of %d", n, claim.Pod, len(claim.Payload))
		}
		if err != nil || len(bundled) != wantBundled {
			t.Errorf("an answer with %d containers: %d of them, %v", n, len(bundled), err)
		}
		if got := c.Stats().Malformed; got != wantMalformed {
			t.Errorf("%d containers: %d counted, want %d", n, got, wantMalformed)
		}
	}
}

// TestAnIDThatForgesALine: an ID in an error obeys no terminal, and begins no line.
func TestAnIDThatForgesALine(t *testing.T) {
	const id = "a\nE0101 forged\x1b[2J"
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox(id, "u", ready)}}
	c := serve(t, s, Config{})
	s.on("PodSandboxStatus", failing(codes.Internal, "broken"))
	_, err := c.Inspect(t.Context(), mustList(t, c, 0).Pods[0])
	_, _, malformed := c.readStatus(podSandboxStatus, id, nil)
	for _, err := range []error{err, malformed} {
		if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), `a\nE0101 forged`) {
			t.Errorf("the error is %q", err)
		}
	}
}
