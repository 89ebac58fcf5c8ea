// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/rawcri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a CRI server with answers in its fields. Calls without a field set are unimplemented.
type stub struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	mu                 sync.Mutex
	sandboxes          []*runtimeapi.PodSandbox
	containers         []*runtimeapi.Container
	streaming          bool // serve the streaming lists, each in a single batch
	podSandboxStatus   func(id string) (*runtimeapi.PodSandboxStatusResponse, error)
	containerStatus    func(id string) (*runtimeapi.ContainerStatusResponse, error)
	getContainerEvents func(stream runtimeapi.RuntimeService_GetContainerEventsServer) error
	listContainers     func() (*runtimeapi.ListContainersResponse, error) // overrides containers
}

func (s *stub) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stub) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "stub", RuntimeVersion: "1.2.3", RuntimeApiVersion: "v1"}, nil
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (s *stub) listSandboxes(f *runtimeapi.PodSandboxFilter) (out []*runtimeapi.PodSandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.sandboxes {
		if (f.GetId() == "" || f.GetId() == p.Id) && matches(p.Labels, f.GetLabelSelector()) {
			out = append(out, p)
		}
	}
	return out
}

func (s *stub) listOfContainers(f *runtimeapi.ContainerFilter) (out []*runtimeapi.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.PodSandboxId) && matches(c.Labels, f.GetLabelSelector()) {
			out = append(out, c)
		}
	}
	return out
}

func (s *stub) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: s.listSandboxes(r.GetFilter())}, nil
}

func (s *stub) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	s.mu.Lock()
	override := s.listContainers
	s.mu.Unlock()
	if override != nil {
		return override()
	}
	return &runtimeapi.ListContainersResponse{Containers: s.listOfContainers(r.GetFilter())}, nil
}

// stubStreams are the streaming lists, which the CRI's module has only from v0.36 on. A batch has
// the wire format of the plain list's answer.
var stubStreams = []grpc.StreamDesc{
	stubStream("StreamPodSandboxes", func(s *stub, r *runtimeapi.ListPodSandboxRequest, stream grpc.ServerStream) error {
		return stream.SendMsg(&runtimeapi.ListPodSandboxResponse{Items: s.listSandboxes(r.GetFilter())})
	}),
	stubStream("StreamContainers", func(s *stub, r *runtimeapi.ListContainersRequest, stream grpc.ServerStream) error {
		return stream.SendMsg(&runtimeapi.ListContainersResponse{Containers: s.listOfContainers(r.GetFilter())})
	}),
}

func stubStream[R any](name string, serve func(*stub, *R, grpc.ServerStream) error) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		s, ok := srv.(*stub)
		if !ok || !s.streaming {
			return status.Errorf(codes.Unimplemented, "method %s not implemented", name)
		}
		request := new(R)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		return serve(s, request, stream)
	}}
}

// register puts the server with the streaming lists on a gRPC server, whichever CRI the tests are
// built with.
func register(on *grpc.Server, server runtimeapi.RuntimeServiceServer) {
	desc := runtimeapi.RuntimeService_ServiceDesc
	desc.Streams = slices.DeleteFunc(slices.Clone(desc.Streams), func(g grpc.StreamDesc) bool {
		return slices.ContainsFunc(stubStreams, func(o grpc.StreamDesc) bool { return o.StreamName == g.StreamName })
	})
	desc.Streams = append(desc.Streams, stubStreams...)
	on.RegisterService(&desc, server)
}

func (s *stub) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if s.podSandboxStatus == nil {
		return nil, status.Error(codes.Unimplemented, "no PodSandboxStatus")
	}
	return s.podSandboxStatus(r.PodSandboxId)
}

func (s *stub) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	if s.containerStatus == nil {
		return nil, status.Error(codes.Unimplemented, "no ContainerStatus")
	}
	return s.containerStatus(r.ContainerId)
}

func (s *stub) GetContainerEvents(r *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	if s.getContainerEvents == nil {
		return s.UnimplementedRuntimeServiceServer.GetContainerEvents(r, stream)
	}
	return s.getContainerEvents(stream)
}

// serve starts a server in memory and returns a client. Both end with the test.
func serve(t testing.TB, server runtimeapi.RuntimeServiceServer, config Config, options ...grpc.ServerOption) *Client {
	t.Helper()
	_, c := serveRaw(t, server, config, options...)
	return c
}

// serveRaw is serve with access to the server, for answers in bytes. Server may be nil.
func serveRaw(t testing.TB, server runtimeapi.RuntimeServiceServer, config Config, options ...grpc.ServerOption) (*rawcri.Server, *Client) {
	t.Helper()
	s := rawcri.Start(t, nil, func(on *grpc.Server) {
		if server != nil {
			register(on, server)
		}
	}, options...)
	config.Dialer = s.Dial
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

// sandbox and container resemble a kubelet's pod in a list.
func sandbox(id, uid string, state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id: id, State: state, CreatedAt: 1,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod-" + uid, Uid: uid, Namespace: "ns"},
		Labels:   podLabelsOf(uid),
	}
}

func container(id, sandbox, uid string, state runtimeapi.ContainerState) *runtimeapi.Container {
	c := &runtimeapi.Container{
		Id: id, PodSandboxId: sandbox, State: state, CreatedAt: 1,
		Metadata: &runtimeapi.ContainerMetadata{Name: "name-" + id},
	}
	if uid != "" {
		c.Labels = podLabelsOf(uid)
	}
	return c
}

// sandboxStatus is the runtime's answer for a kubelet's sandbox.
func sandboxStatus(id, uid string, state runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: id, State: state, CreatedAt: 1,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod-" + uid, Uid: uid, Namespace: "ns"},
		Labels:   podLabelsOf(uid),
	}
}

// mustList returns a listing in a comparable order.
func mustList(t *testing.T, c *Client, since pleg.Revision) pleg.Listing {
	t.Helper()
	l, err := c.List(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Pods {
		slices.SortFunc(p.Items, func(a, b pleg.Item) int { return cmp.Compare(a.ID, b.ID) })
	}
	slices.SortFunc(l.Pods, func(a, b pleg.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return l
}

func podLabelsOf(uid string) map[string]string {
	return map[string]string{labelPodUID: uid, labelPodName: "pod-" + uid, labelPodNamespace: "ns", "app": "x"}
}

const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	created  = runtimeapi.ContainerState_CONTAINER_CREATED
	running  = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited   = runtimeapi.ContainerState_CONTAINER_EXITED
)
