// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; no test asserts a duration.
const patience = 30 * time.Second

// A stub is a runtime with events written by the test. Version answers with the client's headers.
type stub struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	events chan *runtimeapi.ContainerEventResponse // closed: the stream ends
	sent   chan struct{}                           // a value for each event written to the stream
	asked  chan *runtimeapi.ListContainersRequest
}

func (s *stub) Version(ctx context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	headers, _ := metadata.FromIncomingContext(ctx)
	return &runtimeapi.VersionResponse{Version: r.Version, RuntimeName: fmt.Sprint(headers.Get("x-test"), headers.Get("content-type"))}, nil
}

func (s *stub) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	select {
	case s.asked <- r:
	default:
	}
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "one"}, {Id: "two"}}}, nil
}

func (s *stub) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, status.Error(codes.NotFound, "no such container")
}

func (s *stub) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for {
		select {
		case event, ok := <-s.events:
			if !ok {
				return status.Error(codes.ResourceExhausted, "no more events")
			}
			if err := stream.Send(event); err != nil {
				return err
			}
			s.sent <- struct{}{}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// A rig is a stub with a proxy in front and a client.
type rig struct {
	*stub
	proxy  *Proxy
	client runtimeapi.RuntimeServiceClient
}

func newRig(t *testing.T) *rig {
	t.Helper()
	// A test's own directory may be too long for a socket.
	dir, err := os.MkdirTemp("/tmp", "criproxy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &stub{
		events: make(chan *runtimeapi.ContainerEventResponse),
		sent:   make(chan struct{}, 1<<16),
		asked:  make(chan *runtimeapi.ListContainersRequest, 16),
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })

	proxy, err := New(Config{Listen: filepath.Join(dir, "proxy.sock"), Target: filepath.Join(dir, "runtime.sock")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-proxy.Ready():
	case err := <-ran:
		t.Fatal(err)
	}
	return &rig{stub: s, proxy: proxy, client: dial(t, proxy)}
}

func dial(t *testing.T, proxy *Proxy) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+proxy.config.Listen,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnectAtOnce))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

func (r *rig) inject(t *testing.T, f Fault) *Injected {
	t.Helper()
	injected, err := r.proxy.Inject(f)
	if err != nil {
		t.Fatal(err)
	}
	return injected
}

// A reader is an open event stream.
type reader struct {
	grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
}

func (r *rig) subscribe(t *testing.T) reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := r.client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return reader{stream}
}

// emit sends events from the runtime, and waits until all are sent.
func (r *rig) emit(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		select {
		case r.events <- &runtimeapi.ContainerEventResponse{ContainerId: id}:
		case <-time.After(patience):
			t.Errorf("the runtime could not send %s", id)
			return
		}
		select {
		case <-r.sent:
		case <-time.After(patience):
			t.Errorf("the runtime's send of %s hung", id)
			return
		}
	}
}

// read returns the IDs of the next n events.
func (r reader) read(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for range n {
		event, err := r.Recv()
		if err != nil {
			t.Fatalf("after %q: %v", ids, err)
		}
		ids = append(ids, event.ContainerId)
	}
	return ids
}

func ids(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("c%d", i))
	}
	return out
}

func code(err error) codes.Code { return status.Code(err) }

func brief(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestTransparent(t *testing.T) {
	r := newRig(t)
	ctx := metadata.AppendToOutgoingContext(brief(t, patience), "x-test", "kept")
	version, err := r.client.Version(ctx, &runtimeapi.VersionRequest{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if version.Version != "v1" || version.RuntimeName != "[kept] [application/grpc]" {
		t.Errorf("answer %v: the request or its headers were lost", version)
	}
	if _, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{}); code(err) != codes.NotFound {
		t.Errorf("error %v, want the runtime's NotFound", err)
	}
	if _, err := r.client.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{}); err != nil {
		t.Errorf("opening a stream that the runtime lacks: %v, want the error at the first message", err)
	}
	if _, err := r.client.Status(ctx, &runtimeapi.StatusRequest{}); code(err) != codes.Unimplemented {
		t.Errorf("error %v, want the runtime's Unimplemented", err)
	}
	stream := r.subscribe(t)
	want := ids(100)
	go r.emit(t, want...)
	if got := stream.read(t, 100); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %v, want all in order", got)
	}
	close(r.events)
	if _, err := stream.Recv(); code(err) != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v, want the runtime's status", err)
	}
	if got := r.proxy.Calls(); got["Version"] != 1 || got["GetContainerEvents"] != 1 {
		t.Errorf("calls %v", got)
	}
}

func waitUntil(t *testing.T, true func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come true")
		}
	}
}
