// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestStreamFaults compares the events that a client reads of five.
func TestStreamFaults(t *testing.T) {
	named := func(id string) func([]byte) bool {
		return func(m []byte) bool { return bytes.Contains(m, []byte(id)) }
	}
	tests := []struct {
		name  string
		fault Fault
		want  []string
		hits  int
	}{
		{"drop one", Fault{Match: named("c2"), Do: Drop{}}, []string{"c0", "c1", "c3", "c4"}, 1},
		{"drop the second and third", Fault{Skip: 1, Times: 2, Do: Drop{}}, []string{"c0", "c3", "c4"}, 2},
		{"a delay keeps the order", Fault{Times: 1, Do: Delay{For: 50 * time.Millisecond}}, ids(5), 1},
		{"another method's fault", Fault{Method: "ListContainers", Do: Drop{}}, ids(5), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			if tt.fault.Method == "" {
				tt.fault.Method = "GetContainerEvents"
			}
			injected := r.inject(t, tt.fault)
			stream := r.subscribe(t)
			r.emit(t, ids(5)...)
			if diff := cmp.Diff(tt.want, stream.read(t, len(tt.want))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got := injected.Hits(); got != tt.hits {
				t.Errorf("hits %d, want %d", got, tt.hits)
			}
		})
	}
}

// TestStall: the runtime can go on while the client is told nothing, and all is
// told in order once the fault is removed.
func TestStall(t *testing.T) {
	r := newRig(t)
	stall := r.inject(t, Fault{Method: "GetContainerEvents", Skip: 2, Times: 1, Do: Stall{}})
	stream := r.subscribe(t)
	const many = 5000 // far above grpc's buffers
	sent := make(chan struct{})
	go func() { defer close(sent); r.emit(t, ids(many)...) }()
	if diff := cmp.Diff(ids(2), stream.read(t, 2)); diff != "" {
		t.Errorf("before the stall (-want +got):\n%s", diff)
	}
	select {
	case <-sent:
	case <-time.After(patience):
		t.Fatal("a stalled client stops the runtime")
	}
	stall.Remove()
	stall.Remove()
	if diff := cmp.Diff(ids(many)[2:], stream.read(t, many-2)); diff != "" {
		t.Errorf("after the stall (-want +got):\n%s", diff)
	}
}

func TestTruncate(t *testing.T) {
	r := newRig(t)
	r.inject(t, Fault{Method: "ListContainers", Times: 1, Do: Truncate{}})
	_, err := r.client.ListContainers(brief(t, patience), &runtimeapi.ListContainersRequest{})
	if code(err) != codes.Internal {
		t.Errorf("error %v, want Internal: the message cannot be decoded", err)
	}
	if _, err := r.client.ListContainers(brief(t, patience), &runtimeapi.ListContainersRequest{}); err != nil {
		t.Errorf("the call after it: %v", err)
	}
}

func TestCut(t *testing.T) {
	for _, mid := range []bool{false, true} {
		r := newRig(t)
		r.inject(t, Fault{Method: "GetContainerEvents", Skip: 1, Times: 1, Do: Cut{MidMessage: mid}})
		stream := r.subscribe(t)
		r.emit(t, "c0")
		stream.read(t, 1)
		r.emit(t, "c1")
		if _, err := stream.Recv(); code(err) != codes.Unavailable {
			t.Errorf("mid %v: error %v, want Unavailable", mid, err)
		}
		// The client's own reconnect finds the proxy again.
		waitUntil(t, func() bool {
			_, err := r.client.Version(brief(t, patience), &runtimeapi.VersionRequest{})
			return err == nil
		})
	}
}

func TestFail(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		on      Point
		reached bool
	}{{OnCall, false}, {OnReply, true}} {
		r.inject(t, Fault{Method: "ListContainers", On: tt.on, Times: 1, Do: Fail{codes.Aborted, "so told"}})
		_, err := r.client.ListContainers(brief(t, patience), &runtimeapi.ListContainersRequest{})
		if code(err) != codes.Aborted || !strings.Contains(err.Error(), "so told") {
			t.Errorf("error %v, want Aborted", err)
		}
		if got := len(r.asked) == 1; got != tt.reached {
			t.Errorf("on %d: the runtime was asked %v, want %v", tt.on, got, tt.reached)
		}
		r.proxy.Clear()
	}
}

// TestUnaryHangs checks that a call with a dropped, stalled or frozen answer lasts until its
// deadline, and that a stalled call goes on after the fault.
func TestUnaryHangs(t *testing.T) {
	r := newRig(t)
	request := &runtimeapi.ListContainersRequest{}
	for _, f := range []Fault{{Do: Drop{}}, {Do: Stall{}}, {On: OnCall, Do: Stall{}}} {
		f.Method = "ListContainers"
		injected := r.inject(t, f)
		if _, err := r.client.ListContainers(brief(t, 50*time.Millisecond), request); code(err) != codes.DeadlineExceeded {
			t.Errorf("%+v: error %v, want DeadlineExceeded", f, err)
		}
		injected.Remove()
	}
	stall := r.inject(t, Fault{Method: "ListContainers", On: OnCall, Do: Stall{}})
	go func() {
		for stall.Hits() == 0 {
			time.Sleep(time.Millisecond)
		}
		stall.Remove()
	}()
	if _, err := r.client.ListContainers(brief(t, patience), request); err != nil {
		t.Errorf("after the stall: %v", err)
	}
	r.proxy.Freeze()
	if _, err := r.client.ListContainers(brief(t, 50*time.Millisecond), request); code(err) != codes.DeadlineExceeded {
		t.Errorf("frozen: error %v, want DeadlineExceeded", err)
	}
	r.proxy.Thaw()
	if _, err := r.client.ListContainers(brief(t, patience), request); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}

func TestDownAndUp(t *testing.T) {
	r := newRig(t)
	stream := r.subscribe(t)
	r.emit(t, "c0")
	stream.read(t, 1)
	r.proxy.Down()
	if _, err := stream.Recv(); code(err) != codes.Unavailable {
		t.Errorf("error %v, want Unavailable", err)
	}
	if _, err := r.client.Version(brief(t, patience), &runtimeapi.VersionRequest{}); code(err) != codes.Unavailable {
		t.Errorf("while down: error %v, want Unavailable", err)
	}
	for range 2 {
		if err := r.proxy.Up(); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, func() bool {
		_, err := r.client.Version(brief(t, patience), &runtimeapi.VersionRequest{})
		return err == nil
	})
}

func TestInjectRefusesNonsense(t *testing.T) {
	p, err := New(Config{Listen: "/tmp/a", Target: "/tmp/b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Fault{{}, {On: OnCall, Do: Drop{}}, {On: OnCall, Do: Truncate{}}} {
		if _, err := p.Inject(f); err == nil {
			t.Errorf("Inject(%+v) was not refused", f)
		}
	}
	for _, c := range []Config{{}, {Listen: "a"}, {Listen: "a", Target: "a"}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) was not refused", c)
		}
	}
}
