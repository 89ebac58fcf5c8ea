// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// liar stands between clients and the runtime, and sends false messages, which the fake, true to
// its own story, cannot send.
type liar struct {
	t      *testing.T
	behind *grpc.ClientConn
	set    setting
	lies   atomic.Bool // from the beginning of the fault
}

// serve starts a liar in front of the runtime of dial, and returns its own dialer. It ends with
// ctx.
func (l *liar) serve(ctx context.Context, group *sync.WaitGroup, dial dialer) dialer {
	l.behind = connect(l.t, dial)
	lis := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.ForceServerCodecV2(asIs{}), grpc.UnknownServiceHandler(l.handle))
	group.Go(func() { _ = server.Serve(lis) })
	group.Go(func() {
		<-ctx.Done()
		server.Stop()
	})
	return func(ctx context.Context) (net.Conn, error) { return lis.DialContext(ctx) }
}

// handle passes a call on: a request and any number of answers.
func (l *liar) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	desc := &grpc.StreamDesc{ServerStreams: true}
	answers, err := l.behind.NewStream(stream.Context(), desc, method, grpc.ForceCodecV2(asIs{}))
	if err != nil {
		return err
	}
	if err := answers.SendMsg(request); err != nil {
		return err
	}
	if err := answers.CloseSend(); err != nil {
		return err
	}
	events := strings.HasSuffix(method, "/GetContainerEvents")
	var sending sync.Mutex
	send := func(raw []byte) error {
		sending.Lock()
		defer sending.Unlock()
		return stream.SendMsg(raw)
	}
	if events && l.set.falseEnds > 0 {
		defer l.tellEnds(stream.Context(), send)()
	}
	for {
		var raw []byte
		switch err := answers.RecvMsg(&raw); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if l.set.wrongCodes && l.lies.Load() {
			raw = l.wrongCode(method, raw)
		}
		if err := send(raw); err != nil {
			return err
		}
	}
}

// tellEnds sends false ends of a running container, again and again, until the returned function is
// called.
func (l *liar) tellEnds(ctx context.Context, send func([]byte) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-time.After(l.set.falseEnds):
			case <-ctx.Done():
				return
			}
			if l.lies.Load() {
				if raw := l.falseEnd(ctx, i); raw != nil && send(raw) != nil {
					return
				}
			}
		}
	})
	return func() { cancel(); group.Wait() }
}

// falseEnd is an event of the end of a running container, in the runtime's form.
func (l *liar) falseEnd(ctx context.Context, i int) []byte {
	runtime := runtimeapi.NewRuntimeServiceClient(l.behind)
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	list, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: running})
	if err != nil || len(list.GetContainers()) == 0 {
		return nil // the runtime has no subject for a lie
	}
	c := list.GetContainers()[i%len(list.GetContainers())]
	container, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
	if err != nil {
		return nil
	}
	sandbox, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: c.GetPodSandboxId()})
	if err != nil {
		return nil
	}
	ended := container.GetStatus()
	ended.State, ended.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
	return encode(l.t, &runtimeapi.ContainerEventResponse{
		ContainerId: c.GetId(), ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: sandbox.GetStatus(), ContainersStatuses: []*runtimeapi.ContainerStatus{ended},
	})
}

// wrongCode gives the containers of a status or an event another exit code.
func (l *liar) wrongCode(method string, raw []byte) []byte {
	var status runtimeapi.ContainerStatusResponse
	var event runtimeapi.ContainerEventResponse
	switch {
	case strings.HasSuffix(method, "/ContainerStatus"):
		l.decode(raw, &status)
		status.Status.ExitCode += 100
		return encode(l.t, &status)
	case strings.HasSuffix(method, "/GetContainerEvents"):
		l.decode(raw, &event)
		for _, c := range event.GetContainersStatuses() {
			c.ExitCode += 100
		}
		return encode(l.t, &event)
	}
	return raw
}

func (l *liar) decode(raw []byte, m proto.Message) {
	if err := proto.Unmarshal(raw, m); err != nil {
		l.t.Error(err)
	}
}

func encode(t *testing.T, m proto.Message) []byte {
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	return raw
}

// dialer connects to a runtime.
type dialer = func(context.Context) (net.Conn, error)

// connect returns a connection of its own, which ends with the test.
func connect(t *testing.T, dial dialer, opts ...grpc.DialOption) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:fake", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))...)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
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
