// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// floor answers a worker's calls as far as there is something to do without a PLEG: it receives the
// same messages and drops them.
type floor struct {
	worker.Server // for Used alone: it is not started

	decode bool // with the generated decoder
	conn   *grpc.ClientConn
	lists  bool // the runtime has no streaming list calls
	claims atomic.Int64
}

// discard is a codec that looks at nothing.
type discard struct{}

// Marshal implements grpc's encoding.CodecV2.
func (discard) Marshal(any) (mem.BufferSlice, error) { return mem.BufferSlice{}, nil }

// Unmarshal implements grpc's encoding.CodecV2.
func (discard) Unmarshal(mem.BufferSlice, any) error { return nil }

// Name implements grpc's encoding.CodecV2.
func (discard) Name() string { return "" }

// Start connects, and subscribes to the events if the mode wants them.
func (f *floor) Start(c worker.Config, _ *worker.Hello) (err error) {
	options := []grpc.CallOption{grpc.MaxCallRecvMsgSize(1 << 30)}
	if !f.decode {
		options = append(options, grpc.ForceCodecV2(discard{}))
	}
	f.conn, err = grpc.NewClient(
		"unix:"+c.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(options...),
	)
	if err != nil || c.Mode != worker.Evented {
		return err
	}
	s, err := f.stream(
		runtimeapi.RuntimeService_GetContainerEvents_FullMethodName,
		&runtimeapi.GetEventsRequest{},
	)
	if err != nil {
		return err
	}
	go func() { // ends with the process
		for s.RecvMsg(new(runtimeapi.ContainerEventResponse)) == nil {
			f.claims.Add(1)
		}
	}()
	return nil
}

// Await waits for so many events.
func (f *floor) Await(claims int, taken *int) error {
	for limit := time.Now().Add(2 * time.Minute); int(f.claims.Load()) < claims; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			return fmt.Errorf("floor: %d of %d events came", f.claims.Load(), claims)
		}
	}
	*taken = int(f.claims.Load())
	return nil
}

func (f *floor) stream(method string, req proto.Message) (grpc.ClientStream, error) {
	s, err := f.conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = errors.Join(s.SendMsg(req), s.CloseSend())
	}
	return s, err
}

// Relists receives everything n times.
func (f *floor) Relists(n int, _ *bool) error {
	ctx := context.Background()
	for range n {
		if !f.lists {
			err := f.drain(
				runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName,
				&runtimeapi.StreamPodSandboxesRequest{},
				new(runtimeapi.StreamPodSandboxesResponse),
			)
			if f.lists = status.Code(err) == codes.Unimplemented; !f.lists {
				err = errors.Join(
					err,
					f.drain(
						runtimeapi.RuntimeService_StreamContainers_FullMethodName,
						&runtimeapi.StreamContainersRequest{},
						new(runtimeapi.StreamContainersResponse),
					),
				)
				if err != nil {
					return err
				}
				continue
			}
		}
		err := errors.Join(
			f.conn.Invoke(
				ctx,
				runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
				&runtimeapi.ListPodSandboxRequest{},
				new(runtimeapi.ListPodSandboxResponse),
			),
			f.conn.Invoke(
				ctx,
				runtimeapi.RuntimeService_ListContainers_FullMethodName,
				&runtimeapi.ListContainersRequest{},
				new(runtimeapi.ListContainersResponse),
			),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// Newer lists a pod with both calls at once: no read that begins after the question costs less.
func (f *floor) Newer(uid string, n *worker.Newer) error {
	label := map[string]string{"io.kubernetes.pod.uid": uid}
	var s runtimeapi.ListPodSandboxResponse
	var c runtimeapi.ListContainersResponse
	begun := time.Now()
	first := make(chan error, 1)
	go func() {
		first <- f.conn.Invoke(context.Background(), runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
			&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: label}}, &s)
	}()
	err := f.conn.Invoke(context.Background(), runtimeapi.RuntimeService_ListContainers_FullMethodName,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: label}}, &c)
	err = errors.Join(err, <-first)
	n.Took = time.Since(begun)
	for _, item := range c.Containers {
		n.Pod.Items = append(n.Pod.Items, bench.Item{ID: item.Id})
	}
	return err
}

func (f *floor) drain(method string, req, into proto.Message) error {
	s, err := f.stream(method, req)
	for err == nil {
		err = s.RecvMsg(into)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
