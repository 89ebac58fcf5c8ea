// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package disturb

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for _, w := range Words() {
		if _, err := Parse(w.Example); err != nil {
			t.Errorf("the example of %s: %v", w.Name, err)
		}
	}
	got := testkit.Must(Parse("drop=sandbox/STOPPED:0.2", "stall=events@10s-20s", "hang=3f2a91c0", "refuse=ListContainers"))(t)
	want := Plan{
		{
			Text:    "drop=sandbox/STOPPED:0.2",
			Kind:    Drop,
			Methods: []string{"GetContainerEvents"},
			Type:    "STOPPED",
			Item:    "sandbox",
			Share:   0.2,
		},
		{
			Text:    "stall=events@10s-20s",
			Kind:    Stall,
			Methods: []string{"GetContainerEvents"},
			Share:   1,
			From:    10 * time.Second,
			To:      20 * time.Second,
		},
		{Text: "hang=3f2a91c0", Kind: Hang, Methods: []string{""}, ID: "3f2a91c0", Share: 1},
		{Text: "refuse=ListContainers", Kind: Refuse, Methods: []string{"ListContainers"}, Share: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	for text, part := range map[string]string{
		"":                   `no rule is called ""`,
		"lose=0.1":           "use one of drop",
		"drop=2":             "above 0 and at most 1",
		"drop=NaN":           "above 0 and at most 1",
		"drop=DIED:0.1":      "no type of event",
		"drop=pod/STOPPED:1": "neither sandbox nor container",
		"delay=0s":           "no duration above 0",
		"delay=lists":        "no duration above 0",
		"stall=everything":   "names no calls",
		"hang=abc":           "names no calls",
		"stall@20s-10s":      "no time since the begin",
		"cut=-1s":            "no duration above 0",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: error %v, want one with %q", text, err, part)
		}
	}
}

// rig is the fake runtime behind a proxy, both on sockets.
type rig struct {
	runtime *fakeruntime.Runtime
	proxy   *criproxy.Proxy
	direct  runtimeapi.RuntimeServiceClient
	client  runtimeapi.RuntimeServiceClient
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := testkit.Must(os.MkdirTemp("/tmp", "disturb-"))(t) // a test's own may be too long for a socket
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, listen := filepath.Join(dir, "runtime.sock"), filepath.Join(dir, "proxy.sock")
	r := &rig{runtime: testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 1}))(t)}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	lis := testkit.Must(net.Listen("unix", socket))(t)
	served.Go(func() { _ = r.runtime.Serve(ctx, lis) })
	t.Cleanup(func() { cancel(); served.Wait(); r.runtime.Close() })
	r.proxy = testkit.Must(criproxy.Start(listen, socket))(t)
	t.Cleanup(r.proxy.Close)
	r.direct, r.client = dial(t, socket), dial(t, listen)
	return r
}

func dial(t *testing.T, socket string) runtimeapi.RuntimeServiceClient {
	conn := testkit.Must(grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

func (r *rig) disturb(t *testing.T, words ...string) *Disturber {
	return New(r.proxy, testkit.Must(Parse(words...))(t), 7)
}

// TestDropsWhatItCounts compares the events that a client reads with the runtime's history and the
// tally: of each kind as many are missing as the tally says, and the share is near its rule's.
func TestDropsWhatItCounts(t *testing.T) {
	const pods = 200
	r := newRig(t)
	d := r.disturb(t, "drop=container/STOPPED:0.5", "drop=sandbox/DELETED:1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := testkit.Must(r.client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
	subscribed := func() bool { return r.runtime.Stats().Subscribers > 0 }
	for end := time.Now().Add(30 * time.Second); !subscribed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the runtime has no subscriber")
		}
	}
	ids := testkit.Must(r.runtime.Populate(fakeruntime.Population{Pods: pods, Containers: 1, Life: fakeruntime.After(time.Millisecond, 0)}))(t)
	if len(ids) != pods {
		t.Fatalf("%d pods, want %d", len(ids), pods)
	}
	var seen atomic.Int64
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			if e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				seen.Add(1)
			}
		}
	}()
	var stopped EventCount
	for end := time.Now().Add(30 * time.Second); stopped.Received < pods || int(seen.Load()) < pods-stopped.Dropped; time.Sleep(time.Millisecond) {
		stopped = d.Tally().Events["container/STOPPED"]
		if time.Now().After(end) {
			t.Fatalf("the client has read %d, tally %+v", seen.Load(), d.Tally())
		}
	}
	cancel()
	<-reading
	if n := int(seen.Load()); n != stopped.Received-stopped.Dropped {
		t.Errorf("the client has read %d, tally %+v", n, stopped)
	}
	if stopped.Received != pods || stopped.Dropped < pods/4 || stopped.Dropped > 3*pods/4 {
		t.Errorf("stopped: %+v, want about half of %d dropped", stopped, pods)
	}
}

// TestForgetsWhatIsTooMuch: a runtime that sends a new type with each event, and enormous IDs,
// fills neither the tally nor the memory.
func TestForgetsWhatIsTooMuch(t *testing.T) {
	d := New(newRig(t).proxy, nil, 1)
	observe := func(kind runtimeapi.ContainerEventType, sandbox string) {
		d.observe(
			criproxy.Outcome{
				Method: "GetContainerEvents",
				Reply: testkit.Must(proto.Marshal(&runtimeapi.ContainerEventResponse{
					ContainerId:        "c",
					ContainerEventType: kind,
					PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: sandbox},
				}))(t),
			},
		)
	}
	const events = 1000
	for i := range events {
		observe(runtimeapi.ContainerEventType(100+i), strings.Repeat("s", maxID+1+i))
	}
	observe(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, "s1")
	want := map[string]EventCount{
		"container/unknown": {Received: events},
		"container/STOPPED": {Received: 1},
	}
	if diff := cmp.Diff(want, d.Tally().Events); diff != "" {
		t.Errorf("the tally (-want +got):\n%s", diff)
	}
	if len(d.sandboxes) != 1 || !d.sandboxes["s1"] {
		t.Errorf("%d sandboxes are remembered, want s1 alone", len(d.sandboxes))
	}
}

func TestRefusesAndHangsAndLifts(t *testing.T) {
	r := newRig(t)
	testkit.Must(r.runtime.Populate(fakeruntime.Population{Pods: 2, Containers: 1}))(t)
	list := testkit.Must(r.direct.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t)
	sick, well := list.Containers[0].Id, list.Containers[1].Id
	d := r.disturb(t, "refuse=lists", "hang="+sick[:12])
	if _, err := r.client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a list: %v, want Unavailable", err)
	}
	if _, err := r.client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: well}); err != nil {
		t.Errorf("the status of another container: %v", err)
	}
	hung := make(chan error, 1)
	go func() {
		_, err := r.client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: sick})
		hung <- err
	}()
	for end := time.Now().Add(30 * time.Second); d.Tally().Calls["ContainerStatus"].Hung == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing hangs")
		}
	}
	select {
	case err := <-hung:
		t.Errorf("the call did not hang: %v", err)
	default:
	}
	d.Lift()
	if err := <-hung; err != nil {
		t.Errorf("after the end of the rule: %v", err)
	}
	if _, err := r.client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
		t.Errorf("a list after the end: %v", err)
	}
	got := d.Tally().Calls
	if got["ListContainers"].Refused != 1 || got["ListContainers"].Begun != 2 ||
		got["ContainerStatus"].Hung != 1 {
		t.Errorf("tally %+v", got)
	}
}

// TestLiftEndsCuts: once all rules are lifted, no connection is closed any more.
func TestLiftEndsCuts(t *testing.T) {
	r := newRig(t) // outside of the bubble, in which the proxy's connections would stop time
	testkit.Must(r.client.Version(t.Context(), &runtimeapi.VersionRequest{}))(t)
	synctest.Test(t, func(t *testing.T) {
		d := r.disturb(t, "cut=1s")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d.Lift()
		d.Run(ctx)
		if n := d.Tally().Cuts; n != 0 {
			t.Errorf("%d connections cut", n)
		}
	})
	if n := r.proxy.Clients(); n != 1 {
		t.Errorf("%d clients, want 1", n)
	}
}

// TestCounts: a reply that no client got has not come later, and what the client itself gave up is
// no failure of the runtime.
func TestCounts(t *testing.T) {
	late := []criproxy.Action{criproxy.Delay{}, criproxy.Stall{}}
	for _, tt := range []struct {
		name  string
		of    criproxy.Outcome
		event EventCount
		call  CallCount
	}{
		{"late", criproxy.Outcome{Acted: late}, EventCount{Received: 1, Delayed: 1, Stalled: 1}, CallCount{Delayed: 1, Stalled: 1}},
		{"dropped", criproxy.Outcome{Acted: append(late, criproxy.Drop{})}, EventCount{Received: 1, Dropped: 1}, CallCount{}},
		{"replaced", criproxy.Outcome{Acted: append(late, criproxy.Fail{})}, EventCount{Received: 1, Dropped: 1}, CallCount{}},
		{"cut", criproxy.Outcome{Acted: append(late, criproxy.Cut{})}, EventCount{Received: 1, Dropped: 1}, CallCount{}},
		{"failed", criproxy.Outcome{Ended: true, Err: context.Canceled}, EventCount{Received: 1}, CallCount{Failed: 1}},
		{"given up", criproxy.Outcome{Ended: true, Err: context.DeadlineExceeded, GivenUp: true}, EventCount{Received: 1}, CallCount{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var event EventCount
			event.add(tt.of)
			var call CallCount
			call.add(tt.of)
			if event != tt.event || call != tt.call {
				t.Errorf("%+v and %+v, want %+v and %+v", event, call, tt.event, tt.call)
			}
		})
	}
}
