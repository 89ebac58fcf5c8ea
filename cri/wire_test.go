// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Each of these tests is about a fault that a server of raw bytes has shown.

// field is an encoded field of bytes.
func field(number protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), data)
}

// torn is an encoded container status with a cut-off image, with all outer lengths right.
func torn(id, uid string) []byte {
	s := wholeContainer(id, uid, exited)
	s.Image = nil
	image := encode(&runtimeapi.ImageSpec{Image: "registry/repository/name:tag"})
	return append(encode(s), field(8, image[:len(image)-5])...)
}

// eventOf is an encoded event of an exited container, with the encoded statuses of its sandbox and
// its containers.
func eventOf(id string, sandbox []byte, containers ...[]byte) []byte {
	raw := encode(&runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT})
	raw = append(raw, field(4, sandbox)...)
	for _, c := range containers {
		raw = append(raw, field(5, c)...)
	}
	return raw
}

// TestPartialPayloads checks that an event with incomplete statuses claims its phases and offers no
// status.
func TestPartialPayloads(t *testing.T) {
	good := encode(sandboxStatus("s", "u", ready))
	container := encode(wholeContainer("c", "u", exited))
	sandbox := sandboxStatus("s", "u", ready)
	sandbox.Metadata = nil
	for name, message := range map[string][]byte{
		"a container's ID and state alone": eventOf("c", good, encode(&runtimeapi.ContainerStatus{Id: "c", State: exited})),
		"a container with a torn field":    eventOf("c", good, torn("c", "u")),
		"one torn container of two":        eventOf("c", good, container, torn("d", "u")),
		"a sandbox without metadata":       eventOf("c", encode(sandbox), container),
		"a sandbox with a torn network":    eventOf("c", append(good, field(5, []byte{0x0a, 9, '1'})...), container),
		"a container without an ID":        eventOf("c", good, container, encode(wholeContainer("", "u", exited))),
	} {
		t.Run(name, func(t *testing.T) {
			p := newEventBuffer()
			p.fill(mem.BufferSlice{mem.SliceBuffer(message)})
			claim, made := claimOf(new(Client), new(interner), p)
			if !made || claim.Pod != "u" || claim.Item != (pleg.Item{ID: "c", Phase: pleg.PhaseExited}) || claim.Status == nil {
				t.Fatalf("claim %+v", claim)
			}
			if status, err := claim.Status(nil); status != nil || !errors.Is(err, ErrMalformed) {
				t.Errorf("the status is %v, error %v", status, err)
			}
		})
	}
}

// TestAReplacedServerIsLeft checks that a hung old server is left for the new server at its socket.
func TestAReplacedServerIsLeft(t *testing.T) {
	path := socketPathForTest(t)
	old := listenOnSocket(t, path)
	c := must(New(Config{Endpoint: path}))(t)
	defer c.Close()
	mustList(t, c, 0)
	old.on("StreamPodSandboxes", hang)
	old.on("ListPodSandbox", hang)
	list := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.List(ctx, 0)
		if status.Code(err) != codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a list of a server that hangs: %v", err)
		}
	}
	for range hungCalls - 1 { // slow, and still at the socket: kept, however long the lists take
		list()
	}
	if n := c.Stats().Connects; n != 1 {
		t.Errorf("%d connections to one server that hangs for a moment", n)
	}
	check(t, os.Remove(path))
	now := listenOnSocket(t, path)
	for c.Stats().Abandoned == 0 { // a list whose time is over before it begins notices nothing
		list()
	}
	listing, err := c.List(t.Context(), 0)
	for ; status.Code(err) == codes.Unavailable; listing, err = c.List(t.Context(), 0) {
	}
	if err != nil || len(listing.Pods) != 1 {
		t.Fatalf("the new server is not listed: %+v, %v", listing, err)
	}
	if st := c.Stats(); now.called("ListPodSandbox") == 0 || st.Abandoned != 1 || st.Connects != 2 {
		t.Errorf("the new server was called %d times; %+v", now.called("ListPodSandbox"), st)
	}
}

// TestAHungServerIsLeft: repeated deadlines in silence are reason to connect anew where no socket
// can be looked at; events are not silence.
func TestAHungServerIsLeft(t *testing.T) {
	for _, talks := range []bool{false, true} {
		t.Run(fmt.Sprint("talks=", talks), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers := []*stub{new(stub), new(stub)}
				for _, s := range servers {
					s.start(t, bufconn.Listen(1<<20))
				}
				servers[0].on("StreamPodSandboxes", hang)
				servers[0].on("ListPodSandbox", hang)
				servers[0].on("GetContainerEvents", func(c *call) error {
					for c.context.Err() == nil {
						time.Sleep(time.Second)
						if talks {
							_ = c.send(encode(&runtimeapi.ContainerEventResponse{ContainerId: "c"}))
						}
					}
					return nil
				})
				dials := 0
				c, err := New(Config{Dialer: func(ctx context.Context) (net.Conn, error) {
					dials++
					return servers[min(dials, len(servers))-1].dial(ctx)
				}})
				check(t, err)
				defer c.Close()
				events, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for range c.Events(events) {
					}
				}()
				failed := 0
				for range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
					if _, err := c.List(ctx, 0); err != nil {
						failed++
					}
					cancel()
					time.Sleep(time.Second)
				}
				stop()
				<-ended
				if st := c.Stats(); talks && (st.Connects != 1 || failed != 10) || !talks && (st.Abandoned != 1 || failed != 3) {
					t.Errorf("%d failed lists of 10; %+v", failed, st)
				}
			})
		})
	}
}

// TestEitherKindOfList checks that an unimplemented kind of list gives way to the other, back and
// forth on a connection.
func TestEitherKindOfList(t *testing.T) {
	s := &stub{streaming: true, sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}, containers: []*runtimeapi.Container{container("c", "s", "u", running)}}
	c := serve(t, s, Config{})
	no := failing(codes.Unimplemented, "not today")
	plain, streaming := []string{"ListPodSandbox", "ListContainers"}, []string{"StreamPodSandboxes", "StreamContainers"}
	for turn := range 6 {
		off, on := plain, streaming
		if turn%2 == 1 {
			off, on = streaming, plain
		}
		for i := range 2 {
			s.on(off[i], no)
			s.on(on[i], nil)
		}
		if l, err := c.List(t.Context(), 0); err != nil || len(l.Pods) != 1 || len(l.Pods[0].Items) != 2 {
			t.Errorf("turn %d: List: %+v, %v", turn, l, err)
		}
		if p, err := c.ListPod(t.Context(), "u"); err != nil || len(p.Items) != 2 {
			t.Errorf("turn %d: ListPod: %+v, %v", turn, p, err)
		}
	}
	if st := c.Stats(); st.Connects != 1 {
		t.Errorf("stats %+v", st)
	}
	for _, m := range append(plain, streaming...) {
		s.on(m, no)
	}
	if _, err := c.List(t.Context(), 0); status.Code(err) != codes.Unimplemented {
		t.Errorf("List of a runtime without any: %v", err)
	}
}

// TestAWrongNameIsCorrected checks that the name in a later list or read holds.
func TestAWrongNameIsCorrected(t *testing.T) {
	wrong := sandbox("s", "u", ready)
	wrong.Metadata.Name, wrong.Metadata.Namespace = "wrong", "nowhere"
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{wrong}, containers: []*runtimeapi.Container{container("c", "s", "u", running)}}
	s.podSandboxStatus = func(string) (*runtimeapi.PodSandboxStatusResponse, error) {
		return &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus("s", "u", ready)}, nil
	}
	c := serve(t, s, Config{})
	first := mustList(t, c, 0)
	if p := first.Pods[0]; p.Name != "wrong" || p.Namespace != "nowhere" {
		t.Fatalf("the first list: %+v", p)
	}
	pod := first.Pods[0]
	pod.Items = []pleg.Item{{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}}
	in, err := c.Inspect(t.Context(), pod) // the effect of RequestReinspect
	if err != nil || in.Status.Name() != "pod-u" || in.Status.Namespace() != "ns" {
		t.Errorf("the status read anew: %v, %v", in.Status, err)
	}
	s.set(func() { s.sandboxes = []*runtimeapi.PodSandbox{sandbox("s", "u", ready)} })
	next := mustList(t, c, first.Revision)
	if len(next.Pods) != 1 || next.Pods[0].Name != "pod-u" || next.Pods[0].Namespace != "ns" || len(next.Pods[0].Items) != 2 {
		t.Errorf("the list that knows better: %+v", next)
	}
	if last := mustList(t, c, next.Revision); len(last.Pods) != 0 {
		t.Errorf("the list after that: %+v", last)
	}
}

// TestLongErrors checks that a runtime's error text is cut at 1 KiB, on a rune.
func TestLongErrors(t *testing.T) {
	s := new(stub)
	c := serve(t, s, Config{})
	text := "x" + strings.Repeat("ä", 100_000)
	for _, m := range []string{"Version", "ListPodSandbox", "StreamPodSandboxes", "ContainerStatus", "GetContainerEvents"} {
		s.on(m, failing(codes.Internal, text))
	}
	check := func(call string, err error, code codes.Code) {
		t.Helper()
		if err == nil || status.Code(err) != code || len(err.Error()) > 1400 || !utf8.ValidString(err.Error()) || strings.ContainsRune(err.Error(), utf8.RuneError) {
			t.Errorf("%s: %.100v… of %d bytes", call, err, len(fmt.Sprint(err)))
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("(%d bytes)", len(text))) {
			t.Errorf("%s: the error does not say how long it was", call)
		}
	}
	_, err := c.Version(t.Context())
	check("Version", err, codes.Internal)
	_, err = c.List(t.Context(), 0)
	check("List", err, codes.Internal)
	_, err = c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "c"}}})
	check("Inspect", err, codes.Internal)
	for _, code := range []codes.Code{codes.Internal, codes.Unimplemented} {
		s.on("GetContainerEvents", failing(code, text))
		for _, err := range c.Events(t.Context()) {
			check("Events", err, code)
		}
	}
	other := wholeContainer(text, "u", exited)
	s.on("ContainerStatus", raw(encode(&runtimeapi.ContainerStatusResponse{Status: other})))
	if _, err := c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "c"}}}); err == nil || len(err.Error()) > 1400 {
		t.Errorf("the answer about another ID: an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// TestErrorsAreOneLine checks that a runtime's error text commands no terminal and forges no line.
func TestErrorsAreOneLine(t *testing.T) {
	s := new(stub)
	c := serve(t, s, Config{})
	s.on("Version", failing(codes.Internal, "no\x1b[2J\r\nE1125 forged\u009b\u202e"))
	_, err := c.Version(t.Context())
	if err == nil || status.Code(err) != codes.Internal || !strings.HasSuffix(err.Error(), `no\x1b[2J\r\nE1125 forged\u009b\u202e`) {
		t.Errorf("%q", err)
	}
}

// TestKeptMemory checks that known fields bound the memory of a stored status, from an event or an
// answer with unknown bytes anywhere.
func TestKeptMemory(t *testing.T) {
	const unknown = 4 << 20
	fill := field(9999, make([]byte, unknown))
	with := func(m []byte) []byte { return slices.Concat(m, fill) }
	sandbox, container := encode(sandboxStatus("s", "u", ready)), encode(wholeContainer("c", "u", exited))
	image := slices.Concat(container, field(8, with(encode(&runtimeapi.ImageSpec{Image: "image"}))))
	c := &Client{endpoint: "test"}
	ofAnswer := func(message []byte) (*PodStatus, error) {
		raw, others, err := c.readStatus(containerStatus, "c", message)
		return &PodStatus{encoded: &encodedStatus{statusMessages: statusMessages{containers: append(others, raw)}}}, err
	}
	for where, tt := range map[string]struct {
		message []byte
		read    func(message []byte) (*PodStatus, error)
	}{
		"the event":                 {with(eventOf("c", sandbox, container)), statusOfEvent},
		"the sandbox of an event":   {eventOf("c", with(sandbox), container), statusOfEvent},
		"the container of an event": {eventOf("c", sandbox, with(container)), statusOfEvent},
		"the image of an event":     {eventOf("c", sandbox, image), statusOfEvent},
		"the answer":                {with(field(1, container)), ofAnswer},
		"the container":             {field(1, with(container)), ofAnswer},
		"the image":                 {field(1, image), ofAnswer},
	} {
		own := slices.Clone(tt.message)
		followed := weak.Make(&own[0]) // the heap's size would include memory freed by earlier tests
		kept := must(tt.read(own))(t)
		own = nil
		runtime.GC()
		if followed.Value() != nil {
			t.Errorf("unknown bytes in %s: the status keeps the message of %d bytes", where, len(tt.message))
		}
		held := 0
		for _, raw := range slices.Concat(kept.encoded.sandboxes, kept.encoded.containers) {
			held += cap(raw)
		}
		if held > unknown/8 {
			t.Errorf("unknown bytes in %s: the status holds %d bytes", where, held)
		}
		if all := kept.Containers(); len(all) != 1 || all[0].Image != "image" || all[0].LogPath != "/var/log/pods/c" {
			t.Errorf("unknown bytes in %s: the status is %v", where, kept)
		}
	}
}

// TestLongUIDs checks that items with an overlong UID are left out and counted, wherever they
// appear.
func TestLongUIDs(t *testing.T) {
	for length, want := range map[int]int{maxID: 2, maxID + 1: 0} {
		uid := strings.Repeat("u", length)
		s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", uid, ready)}, containers: []*runtimeapi.Container{container("c", "s", uid, running)}}
		c := serve(t, s, Config{})
		items := 0
		l := mustList(t, c, 0)
		for _, p := range l.Pods {
			items += len(p.Items)
		}
		if st := c.Stats(); items != want || st.Malformed != uint64(2-want) || st.Unattributed != 0 {
			t.Errorf("a UID of %d bytes: %d items in %d pods, %+v", length, items, len(l.Pods), st)
		}
		if p, err := c.ListPod(t.Context(), cache.UID(uid)); err != nil || len(p.Items) != want {
			t.Errorf("a UID of %d bytes: ListPod shows %d items, %v", length, len(p.Items), err)
		}
		s.on("GetContainerEvents", raw(eventOf("c", encode(sandboxStatus("s", uid, ready)), encode(wholeContainer("c", uid, exited)))))
		for claim, err := range c.Events(t.Context()) {
			if err == nil && (len(claim.Payload) != want || (claim.Pod == "") != (want == 0)) {
				t.Errorf("a UID of %d bytes: an event claims %d items of pod %.10q", length, len(claim.Payload), claim.Pod)
			}
		}
	}
}
