// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// world is a runtime served over bufconn, with a client. Everything ends with the test.
type world struct {
	// dials has one connection made at a time: each sets timers that are due at once, and where two
	// goroutines of a bubble run such timers together, go1.26's race detector crashes.
	dials sync.Mutex

	t    *testing.T
	rt   *Runtime
	lis  *bufconn.Listener
	conn *grpc.ClientConn
	cri  runtimeapi.RuntimeServiceClient
	img  runtimeapi.ImageServiceClient
	end  func()
}

// streamList calls a streaming list like the CRI's own client from v0.36 on. Its batches have the
// wire format of the plain list's answer.
func streamList[Batch any](
	ctx context.Context, conn *grpc.ClientConn, method string, options ...grpc.CallOption,
) (grpc.ServerStreamingClient[Batch], error) {
	service := "/runtime.v1.RuntimeService/"
	if method == "StreamImages" {
		service = "/runtime.v1.ImageService/"
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, service+method, options...)
	if err != nil {
		return nil, err
	}
	call := &grpc.GenericClientStream[runtimeapi.VersionRequest, Batch]{ClientStream: stream}
	if err := stream.SendMsg(&runtimeapi.VersionRequest{}); err != nil { // empty: no filter
		return nil, err
	}
	return call, stream.CloseSend()
}

// inBubble runs f on a runtime in a bubble with virtual time. The bubble itself fails the test if a
// goroutine is left behind.
func inBubble(t *testing.T, cfg Config, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.end()
		f(t, w)
	})
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	rt := must(New(cfg))(t)
	w := &world{t: t, rt: rt, lis: bufconn.Listen(1 << 20)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := rt.Serve(ctx, w.lis); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	w.conn = w.dial(t)
	w.cri, w.img = runtimeapi.NewRuntimeServiceClient(w.conn), runtimeapi.NewImageServiceClient(w.conn)
	w.end = func() {
		w.conn.Close()
		cancel()
		wg.Wait()
		rt.Close()
	}
	return w
}

// dial connects to the runtime until the end of the test.
func (w *world) dial(t testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := must(grpc.NewClient("passthrough:///bufconn", append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			w.dials.Lock()
			defer w.dials.Unlock()
			return w.lis.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30)),
	}, opts...)...))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// These calls of a kubelet must succeed.

func (w *world) runPod(cfg *runtimeapi.PodSandboxConfig) (id string) {
	w.t.Helper()
	return must(w.cri.RunPodSandbox(w.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg}))(w.t).PodSandboxId
}

func (w *world) create(sandbox string, cfg *runtimeapi.ContainerConfig) (id string) {
	w.t.Helper()
	return must(w.cri.CreateContainer(w.t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: cfg}))(w.t).ContainerId
}

func (w *world) start(sandbox string, cfg *runtimeapi.ContainerConfig) (id string) {
	w.t.Helper()
	id = w.create(sandbox, cfg)
	must(w.cri.StartContainer(w.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}))(w.t)
	return id
}

func (w *world) status(container string) *runtimeapi.ContainerStatus {
	w.t.Helper()
	return must(w.cri.ContainerStatus(w.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container}))(w.t).Status
}

func (w *world) sandboxStatus(sandbox string) *runtimeapi.PodSandboxStatus {
	w.t.Helper()
	return must(w.cri.PodSandboxStatus(w.t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox}))(w.t).Status
}

func (w *world) sandboxes() []*runtimeapi.PodSandbox {
	w.t.Helper()
	return must(w.cri.ListPodSandbox(w.t.Context(), &runtimeapi.ListPodSandboxRequest{}))(w.t).Items
}

func (w *world) containers() []*runtimeapi.Container {
	w.t.Helper()
	return must(w.cri.ListContainers(w.t.Context(), &runtimeapi.ListContainersRequest{}))(w.t).Containers
}

// listening is a client that reads events as they come.
type listening struct {
	mu     sync.Mutex
	events []*runtimeapi.ContainerEventResponse
	err    error
	cancel func()
	wg     sync.WaitGroup
}

// listen subscribes on the connection and waits until the runtime has the subscriber.
func (w *world) listen(conn *grpc.ClientConn) *listening {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listening{cancel: cancel}
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		w.t.Fatalf("GetContainerEvents: %v: opening a stream never fails", err)
	}
	l.wg.Go(func() {
		for {
			ev, err := stream.Recv()
			l.mu.Lock()
			if err != nil {
				l.err = err
				l.mu.Unlock()
				return
			}
			l.events = append(l.events, ev)
			l.mu.Unlock()
		}
	})
	synctest.Wait()
	return l
}

// stop ends the stream and returns all received events.
func (l *listening) stop() []*runtimeapi.ContainerEventResponse {
	synctest.Wait()
	l.cancel()
	l.wg.Wait()
	synctest.Wait()
	return l.events
}

// so far is a copy of the received events, once everything is quiet.
func (l *listening) soFar() []*runtimeapi.ContainerEventResponse {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// error is the end of the stream, nil while open.
func (l *listening) error() error {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// kinds are the short names of events: the type, of a sandbox in capitals.
func kinds(events []*runtimeapi.ContainerEventResponse) []string {
	out := []string{}
	for _, ev := range events {
		name := map[runtimeapi.ContainerEventType]string{0: "created", 1: "started", 2: "stopped", 3: "deleted"}[ev.ContainerEventType]
		if ev.ContainerId == ev.GetPodSandboxStatus().GetId() {
			name = "pod " + name
		}
		out = append(out, name)
	}
	return out
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// podConfig is a sandbox as requested by a kubelet.
func podConfig(name string, attempt uint32) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      name,
			Namespace: "ns",
			Uid:       "uid-" + name,
			Attempt:   attempt,
		},
		Hostname:     name,
		LogDirectory: "/var/log/pods/ns_" + name + "_uid-" + name,
		Labels: map[string]string{
			labelPodName:      name,
			labelPodNamespace: "ns",
			labelPodUID:       "uid-" + name,
			"app":             "test",
		},
		Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		Linux:       &runtimeapi.LinuxPodSandboxConfig{},
	}
}

// containerConfig is a container of the pod a, as requested by a kubelet.
func containerConfig(name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: 0},
		Image:    &runtimeapi.ImageSpec{Image: WorkloadImage, UserSpecifiedImage: "tool:1"},
		Command:  command,
		Labels: map[string]string{
			labelPodName: "a", labelPodNamespace: "ns", labelPodUID: "uid-a", labelContainerName: name,
		},
		Annotations: map[string]string{"io.kubernetes.container.restartCount": "0"},
		LogPath:     name + "/0.log",
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/mnt", Readonly: true}},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 512},
		},
	}
}
