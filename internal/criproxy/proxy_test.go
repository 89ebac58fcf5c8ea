// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/rawgrpc"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; no test asserts a duration.
const patience = 30 * time.Second

// A rig is a runtime with events written by the test, a proxy in front and a client.
type rig struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	events chan string // their IDs; closed: the stream ends
	asked  atomic.Int64
	proxy  *Proxy
	client runtimeapi.RuntimeServiceClient
}

func (r *rig) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	r.asked.Add(1)
	return &runtimeapi.ListContainersResponse{
		Containers: []*runtimeapi.Container{{Id: "one"}, {Id: "two"}},
	}, nil
}

func (r *rig) ContainerStatus(
	context.Context,
	*runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, status.Error(codes.NotFound, "no such container")
}

func (r *rig) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	for {
		select {
		case id, ok := <-r.events:
			if !ok {
				return status.Error(codes.ResourceExhausted, "no more events")
			}
			if err := stream.Send(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Version answers with the metadata of its request, as header and as trailer.
func (r *rig) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	got := append(md.Get("traceparent"), md.Get("some-bin")...)
	err := errors.Join(
		grpc.SetHeader(ctx, metadata.MD{"head-bin": got}),
		grpc.SetTrailer(ctx, metadata.MD{"tail-bin": got}),
	)
	return &runtimeapi.VersionResponse{}, err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	// A test's own directory may be too long for a socket.
	dir := testkit.Must(os.MkdirTemp("/tmp", "criproxy-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{events: make(chan string)}
	runtime, listen := filepath.Join(dir, "runtime.sock"), filepath.Join(dir, "proxy.sock")
	listener := testkit.Must(net.Listen("unix", runtime))(t)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	r.proxy = testkit.Must(Start(listen, runtime))(t)
	t.Cleanup(r.proxy.Close)
	conn := testkit.Must(grpc.NewClient("unix:"+listen, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnectAtOnce)))(t)
	t.Cleanup(func() { conn.Close() })
	r.client = runtimeapi.NewRuntimeServiceClient(conn)
	return r
}

// list makes a call within a time.
func (r *rig) list(t *testing.T, within time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := r.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return err
}

// reconnects waits until the client has found the proxy again by its own means.
func (r *rig) reconnects(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); r.list(t, patience) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client has not reconnected")
		}
	}
}

// subscribe returns a function that reads the IDs of the next n events, fewer at the end of the
// stream, and the end's code.
func (r *rig) subscribe(t *testing.T) func(n int) ([]string, codes.Code) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream := testkit.Must(r.client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
	return func(n int) (got []string, code codes.Code) {
		for len(got) < n {
			event, err := stream.Recv()
			if err != nil {
				return got, status.Code(err)
			}
			got = append(got, event.ContainerId)
		}
		return got, codes.OK
	}
}

// emit sends events from the runtime until the test ends, or the stream.
func (r *rig) emit(t *testing.T, ids []string) (sent chan struct{}) {
	sent = make(chan struct{})
	go func() {
		defer close(sent)
		for _, id := range ids {
			select {
			case r.events <- id:
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { <-sent })
	return sent
}

func ids(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("c%d", i))
	}
	return out
}

func TestTransparent(t *testing.T) {
	r := newRig(t)
	if _, err := r.client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{}); status.Code(err) != codes.NotFound {
		t.Errorf("error %v, want the runtime's NotFound", err)
	}
	if _, err := r.client.Status(t.Context(), &runtimeapi.StatusRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("error %v, want the runtime's Unimplemented", err)
	}
	read := r.subscribe(t)
	<-r.emit(t, ids(100))
	close(r.events)
	got, code := read(101)
	if diff := cmp.Diff(ids(100), got); diff != "" || code != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v, want the runtime's status; events (-want +got):\n%s", code, diff)
	}
	if got := r.proxy.Calls(); got["ContainerStatus"] != 1 || got["GetContainerEvents"] != 1 {
		t.Errorf("calls %v", got)
	}
}

// TestStreamFaults compares the events that a client reads of five.
func TestStreamFaults(t *testing.T) {
	named := func(event string) func([]byte) bool {
		return func(m []byte) bool { return strings.Contains(string(m), event) }
	}
	for _, tt := range []struct {
		name  string
		fault Fault
		want  []string
		end   codes.Code
		hits  int
	}{
		{"drop one", Fault{Match: named("c2"), Do: Drop{}}, []string{"c0", "c1", "c3", "c4"}, codes.OK, 1},
		{"drop the first two", Fault{Times: 2, Do: Drop{}}, []string{"c2", "c3", "c4"}, codes.OK, 2},
		{"a delay keeps the order", Fault{Times: 1, Do: Delay{For: 50 * time.Millisecond}}, ids(5), codes.OK, 1},
		{"another method's fault", Fault{Method: "Version", Do: Drop{}}, ids(5), codes.OK, 0},
		{"truncate", Fault{Match: named("c2"), Do: Truncate{}}, ids(2), codes.Internal, 1},
		{"fail", Fault{Match: named("c2"), Do: Fail{codes.Aborted, "so told"}}, ids(2), codes.Aborted, 1},
		{"cut", Fault{Match: named("c2"), Do: Cut{}}, nil, codes.Unavailable, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			if tt.fault.Method == "" {
				tt.fault.Method = "GetContainerEvents"
			}
			injected := r.proxy.Inject(tt.fault)
			read := r.subscribe(t)
			r.emit(t, ids(5))
			n := 5
			if tt.end == codes.OK {
				n = len(tt.want)
			}
			got, code := read(n)
			if tt.want == nil {
				got = nil // what was under way at the cut may be lost
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.end {
				t.Errorf("the end %v, want %v; events (-want +got):\n%s", code, tt.end, diff)
			}
			if got := injected.Hits(); got != tt.hits {
				t.Errorf("hits %d, want %d", got, tt.hits)
			}
			r.reconnects(t)
		})
	}
}

// TestStall: the runtime can go on while the client is told nothing, and all is
// told in order once the fault is removed.
func TestStall(t *testing.T) {
	r := newRig(t)
	stall := r.proxy.Inject(Fault{Times: 1, Do: Stall{}})
	read := r.subscribe(t)
	const many = 5000 // far above grpc's buffers
	select {
	case <-r.emit(t, ids(many)):
	case <-time.After(patience):
		t.Fatal("a stalled client stops the runtime")
	}
	stall.Remove()
	stall.Remove()
	got, _ := read(many)
	if diff := cmp.Diff(ids(many), got); diff != "" {
		t.Errorf("after the stall (-want +got):\n%s", diff)
	}
}

// TestCallHangs checks that a held call and a held answer last until their deadline, and go on
// after the fault.
// TestHoldsNoMoreThanItMay: a stalled call holds so many replies only, and delivers all in order
// once the gate opens.
func TestHoldsNoMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			size = 1 << 20
			all  = 2 * mostHeld / size
		)
		gate := make(chan struct{})
		in := make(chan reply)
		taken := 0 // owned by the runtime's goroutine, and read while it is blocked
		go func() {
			for i := range all {
				frame := rawgrpc.Frame{Data: make([]byte, size)}
				frame.Data[0] = byte(i)
				in <- reply{Frame: frame, gates: []<-chan struct{}{gate}}
				taken++
			}
			in <- reply{last: true}
		}()
		var got []byte
		ended := make(chan error, 1)
		go func() {
			ended <- deliver(t.Context(), in, func(r reply) error {
				if !r.last {
					got = append(got, r.Data[0])
				}
				return nil
			})
		}()
		synctest.Wait()
		if taken != mostHeld/size {
			t.Errorf("%d replies of a MiB are held, want %d", taken, mostHeld/size)
		}
		close(gate)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(got) != all || !slices.IsSorted(got) {
			t.Errorf("delivered %v, want %d in order", got, all)
		}
	})
}

func TestCallHangs(t *testing.T) {
	r := newRig(t)
	for _, do := range []Action{Hold{}, Stall{}} {
		injected, before := r.proxy.Inject(Fault{Method: "ListContainers", Do: do}), r.asked.Load()
		for injected.Hits() == 0 { // on a busy machine a deadline may pass before the call is at the proxy
			if err := r.list(t, 50*time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("%T: error %v, want DeadlineExceeded", do, err)
			}
		}
		ended := injected.Hits()
		answered := make(chan error)
		go func() { answered <- r.list(t, patience) }()
		for injected.Hits() == ended {
			time.Sleep(time.Millisecond)
		}
		if _, hold := do.(Hold); hold != (r.asked.Load() == before) {
			t.Errorf("%T: the runtime was asked %d times", do, r.asked.Load()-before)
		}
		injected.Remove()
		if err := <-answered; err != nil {
			t.Errorf("after the %T: %v", do, err)
		}
	}
}

func TestDownAndUp(t *testing.T) {
	r := newRig(t)
	read := r.subscribe(t)
	r.emit(t, ids(1))
	read(1)
	r.proxy.Down()
	if _, code := read(1); code != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", code)
	}
	if err := r.list(t, patience); status.Code(err) != codes.Unavailable {
		t.Errorf("while down: error %v, want Unavailable", err)
	}
	testkit.Check(t, r.proxy.Up())
	r.reconnects(t)
}

// TestSilentClient: a client that has connected and says nothing holds up no end.
func TestSilentClient(t *testing.T) {
	r := newRig(t)
	silent := testkit.Must(net.Dial("unix", r.proxy.listen))(t)
	defer silent.Close()
	for r.proxy.Clients() == 0 {
		time.Sleep(time.Millisecond)
	}
	down := make(chan struct{})
	go func() {
		defer close(down)
		r.proxy.Down()
	}()
	select {
	case <-down:
	case <-time.After(patience):
		t.Error("the proxy waits for the client")
	}
	<-down
	if n := r.proxy.Clients(); n != 0 {
		t.Errorf("%d clients of a proxy that is down", n)
	}
	testkit.Check(t, r.proxy.Up())
	r.reconnects(t)
}

// TestStartFails: a proxy that cannot listen leaves nothing behind (goleak), and is none.
func TestStartFails(t *testing.T) {
	p, err := Start(filepath.Join(t.TempDir(), "absent", "proxy.sock"), "/absent/runtime.sock")
	if err == nil || p != nil {
		t.Errorf("started %v, error %v", p, err)
	}
}

// TestMetadataPasses: what a client sends beside its request reaches the runtime, such as the
// context of a trace, and the runtime's own beside the answers reaches the client.
func TestMetadataPasses(t *testing.T) {
	r := newRig(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-1-2-01", "some-bin", "\x00\xff")
	var header, trailer metadata.MD
	_, err := r.client.Version(ctx, &runtimeapi.VersionRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	testkit.Check(t, err)
	for name, got := range map[string][]string{"head": header.Get("head-bin"), "tail": trailer.Get("tail-bin")} {
		if diff := cmp.Diff([]string{"00-1-2-01", "\x00\xff"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
