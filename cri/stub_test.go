// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	headers "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a CRI server with answers in its fields, and any others set by on: any bytes, any error,
// late, in any number, or never. Calls without an answer are unimplemented. Like CRI-O the server
// accepts only the content type "application/grpc", exactly, where gRPC allows
// "application/grpc+proto" too.
type stub struct {
	listener net.Listener

	mu               sync.Mutex // guards the fields below
	sandboxes        []*runtimeapi.PodSandbox
	containers       []*runtimeapi.Container
	streaming        bool // serve the streaming lists, each in a single batch
	podSandboxStatus func(id string) (*runtimeapi.PodSandboxStatusResponse, error)
	containerStatus  func(id string) (*runtimeapi.ContainerStatusResponse, error)
	answers          map[string]answer
	calls            map[string]int
}

// call is a call of a client. It belongs to its answer.
type call struct {
	context context.Context // ends when the client gives up or the server stops
	request []byte
	send    func(message []byte) error // a unary call wants exactly a single message
}

// answer answers a call. Its result is the call's status.
type answer func(*call) error

// raw answers with the messages unchanged.
func raw(messages ...[]byte) answer {
	return func(c *call) error {
		for _, m := range messages {
			if err := c.send(m); err != nil {
				return err
			}
		}
		return nil
	}
}

func failing(code codes.Code, text string) answer {
	return func(*call) error { return status.Error(code, text) }
}

// hang never answers.
func hang(c *call) error {
	<-c.context.Done()
	return c.context.Err()
}

// answering answers with the result of a function of the request.
func answering[M any, P interface {
	*M
	proto.Message
}, Q proto.Message](f func(P) (Q, error)) answer {
	return func(c *call) error {
		request := P(new(M))
		if err := proto.Unmarshal(c.request, request); err != nil {
			return err
		}
		m, err := f(request)
		if err != nil {
			return err
		}
		return c.send(encode(m))
	}
}

// encode returns a message's bytes.
func encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func (s *stub) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// on sets the answer to the calls of a method from now on; nil leaves them to the fields.
func (s *stub) on(method string, a answer) { s.set(func() { s.answers[method] = a }) }

// called returns how often a method was called.
func (s *stub) called(method string) (n int) {
	s.set(func() { n = s.calls[method] })
	return n
}

// answer counts a call and returns its answer.
func (s *stub) answer(method string) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method]++
	plain, streaming := strings.CutPrefix(method, "Stream")
	switch {
	case s.answers[method] != nil:
		return s.answers[method]
	case method == "Version":
		return raw(encode(&runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "stub", RuntimeVersion: "1.2.3", RuntimeApiVersion: "v1"}))
	case method == "ListPodSandbox", s.streaming && plain == "PodSandboxes":
		return answering(s.listSandboxes)
	case method == "ListContainers", s.streaming && streaming && plain == "Containers":
		return answering(s.listContainers)
	case method == "PodSandboxStatus" && s.podSandboxStatus != nil:
		return answering(func(r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
			return s.podSandboxStatus(r.PodSandboxId)
		})
	case method == "ContainerStatus" && s.containerStatus != nil:
		return answering(func(r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
			return s.containerStatus(r.ContainerId)
		})
	}
	return failing(codes.Unimplemented, "no "+method)
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (s *stub) listSandboxes(r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, f := &runtimeapi.ListPodSandboxResponse{}, r.GetFilter()
	for _, p := range s.sandboxes {
		if (f.GetId() == "" || f.GetId() == p.Id) && matches(p.Labels, f.GetLabelSelector()) {
			list.Items = append(list.Items, p)
		}
	}
	return list, nil
}

func (s *stub) listContainers(r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, f := &runtimeapi.ListContainersResponse{}, r.GetFilter()
	for _, c := range s.containers {
		if (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.PodSandboxId) && matches(c.Labels, f.GetLabelSelector()) {
			list.Containers = append(list.Containers, c)
		}
	}
	return list, nil
}

// start starts the server, which ends with the test.
func (s *stub) start(t testing.TB, l net.Listener, options ...grpc.ServerOption) {
	s.listener, s.answers, s.calls = l, make(map[string]answer), make(map[string]int)
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(asIs{}), grpc.MaxSendMsgSize(1 << 30), grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(s.handle),
	}, options...)...)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); served.Wait() })
}

func (s *stub) handle(_ any, stream grpc.ServerStream) error {
	if !slices.Equal(headers.ValueFromIncomingContext(stream.Context(), "content-type"), []string{"application/grpc"}) {
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	method, _ := grpc.MethodFromServerStream(stream)
	c := &call{context: stream.Context(), send: func(m []byte) error { return stream.SendMsg(m) }}
	if err := stream.RecvMsg(&c.request); err != nil {
		return err
	}
	return s.answer(path.Base(method))(c)
}

// asIs moves messages as bytes.
type asIs struct{}

// Marshal implements grpc's encoding.CodecV2.
func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal implements grpc's encoding.CodecV2.
func (asIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name implements grpc's encoding.CodecV2.
func (asIs) Name() string { return "" }

// dial connects to a server in memory.
func (s *stub) dial(ctx context.Context) (net.Conn, error) {
	return s.listener.(*bufconn.Listener).DialContext(ctx)
}

// serve starts the server in memory and returns a client. Both end with the test.
func serve(t testing.TB, s *stub, config Config, options ...grpc.ServerOption) *Client {
	t.Helper()
	s.start(t, bufconn.Listen(1<<20), options...)
	config.Dialer = s.dial
	c := must(New(config))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError wants an error with these parts.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in the error %v", part, err)
		}
	}
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
	return statusOfSandbox(sandbox(id, uid, state))
}

// wholeContainer is the runtime's answer for a kubelet's container.
func wholeContainer(id, uid string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: id, State: state, CreatedAt: 1, Metadata: &runtimeapi.ContainerMetadata{Name: "name-" + id}, Labels: podLabelsOf(uid),
		Image: &runtimeapi.ImageSpec{Image: "image"}, ImageRef: "image@sha256:1", LogPath: "/var/log/pods/" + id,
	}
}

// mustList returns a listing in a comparable order.
func mustList(t *testing.T, c *Client, since pleg.Revision) pleg.Listing {
	t.Helper()
	l := must(c.List(t.Context(), since))(t)
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
