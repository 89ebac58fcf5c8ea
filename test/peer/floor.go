// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
)

// floor implements [agent.Driver] as far as there is something to do without a PLEG: it receives
// the same messages and drops them.
type floor struct {
	decode  bool // with the generated decoder
	streams bool // by the streaming list calls
	conn    *grpc.ClientConn
	events  atomic.Int64
	open    atomic.Bool
}

// discard is a codec that looks at nothing.
type discard struct{}

// Marshal implements grpc's encoding.CodecV2.
func (discard) Marshal(any) (mem.BufferSlice, error) { return mem.BufferSlice{}, nil }

// Unmarshal implements grpc's encoding.CodecV2.
func (discard) Unmarshal(mem.BufferSlice, any) error { return nil }

// Name implements grpc's encoding.CodecV2.
func (discard) Name() string { return "" }

// Start implements [agent.Driver].
func (d *floor) Start(o agent.Options) (err error) {
	d.streams = o.Streams
	options := []grpc.CallOption{grpc.MaxCallRecvMsgSize(1 << 30)}
	if !d.decode {
		options = append(options, grpc.ForceCodecV2(discard{}))
	}
	d.conn, err = grpc.NewClient("unix://"+o.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(options...))
	if err != nil || o.Mode == "manual" {
		return err
	}
	s, err := d.stream(runtimeapi.RuntimeService_GetContainerEvents_FullMethodName, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	d.open.Store(true)
	go func() {
		for s.RecvMsg(new(runtimeapi.ContainerEventResponse)) == nil {
			d.events.Add(1)
		}
	}()
	return nil
}

func (d *floor) stream(method string, req proto.Message) (grpc.ClientStream, error) {
	s, err := d.conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = errors.Join(s.SendMsg(req), s.CloseSend())
	}
	return s, err
}

// Relist implements [agent.Driver].
func (d *floor) Relist() error {
	if d.streams {
		return errors.Join(
			d.drain(runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName, &runtimeapi.StreamPodSandboxesRequest{}, new(runtimeapi.StreamPodSandboxesResponse)),
			d.drain(runtimeapi.RuntimeService_StreamContainers_FullMethodName, &runtimeapi.StreamContainersRequest{}, new(runtimeapi.StreamContainersResponse)))
	}
	ctx := context.Background()
	return errors.Join(
		d.conn.Invoke(ctx, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, &runtimeapi.ListPodSandboxRequest{}, new(runtimeapi.ListPodSandboxResponse)),
		d.conn.Invoke(ctx, runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{}, new(runtimeapi.ListContainersResponse)))
}

func (d *floor) drain(method string, req, into proto.Message) error {
	s, err := d.stream(method, req)
	for err == nil {
		err = s.RecvMsg(into)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Ready implements [agent.Driver].
func (d *floor) Ready() bool { return d.open.Load() }

// Handled implements [agent.Driver].
func (d *floor) Handled() int64 { return d.events.Load() }

var errNotPLEG = errors.New("floor: this is no PLEG")

// Newer implements [agent.Driver].
func (d *floor) Newer(string, time.Time) error { return errNotPLEG }

// Drain implements [agent.Driver].
func (d *floor) Drain(func(pod, id, kind string)) {}

// Footprint implements [agent.Driver].
func (d *floor) Footprint() (int64, error) { return 0, errNotPLEG }
