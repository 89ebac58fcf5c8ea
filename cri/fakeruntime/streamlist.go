// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The streaming lists are described here, because the CRI's module has them only from v0.36 on, and
// would raise an agent's older gRPC. Request and batch of a streaming list have the wire format of
// the plain list's request and answer.
var (
	runtimeLists = []grpc.StreamDesc{
		streamingList("StreamPodSandboxes", (*service).streamPodSandboxes),
		streamingList("StreamContainers", (*service).streamContainers),
		streamingList("StreamContainerStats", (*service).streamContainerStats),
		streamingList("StreamPodSandboxStats", (*service).streamPodSandboxStats),
	}
	imageLists = []grpc.StreamDesc{streamingList("StreamImages", (*service).streamImages)}
)

// streamingList describes a method with a request and a stream of answers.
func streamingList[R any](name string, serve func(*service, *R, grpc.ServerStream) error) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		request := new(R)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		return serve(srv.(*service), request, stream)
	}}
}

// withLists returns the streams of a generated service, those of the same name replaced by ours.
func withLists(generated, ours []grpc.StreamDesc) []grpc.StreamDesc {
	others := slices.DeleteFunc(slices.Clone(generated), func(g grpc.StreamDesc) bool {
		return slices.ContainsFunc(ours, func(o grpc.StreamDesc) bool { return o.StreamName == g.StreamName })
	})
	return append(others, ours...)
}

func (s *service) streamContainers(req *runtimeapi.ListContainersRequest, stream grpc.ServerStream) error {
	return streamRows(s, "StreamContainers", s.rt.findContainers(req.GetFilter()), s.rt.containerPage, stream)
}

func (s *service) streamPodSandboxes(req *runtimeapi.ListPodSandboxRequest, stream grpc.ServerStream) error {
	return streamRows(s, "StreamPodSandboxes", s.rt.findSandboxes(req.GetFilter()), s.rt.sandboxPage, stream)
}

// streamRows sends the list in batches of the profile's size. An empty list is no message.
func streamRows[T listed](
	s *service, method string, rows []row[T], page func(rows []row[T], first bool, method string, call uint64) mem.BufferSlice, stream grpc.ServerStream,
) error {
	n, first := s.rt.calls(method), true
	return sendBatches(s, method, rows, func(batch []row[T]) error {
		answer := &reply{page(batch, first, method, n)}
		first = false
		return stream.SendMsg(answer)
	})
}

// streamContainerStats is ListContainerStats in batches.
func (s *service) streamContainerStats(req *runtimeapi.ListContainerStatsRequest, stream grpc.ServerStream) error {
	return sendBatches(s, "StreamContainerStats", s.listContainerStats(req.GetFilter()), func(batch []*runtimeapi.ContainerStats) error {
		return stream.SendMsg(&runtimeapi.ListContainerStatsResponse{Stats: batch})
	})
}

// streamPodSandboxStats is ListPodSandboxStats in batches.
func (s *service) streamPodSandboxStats(req *runtimeapi.ListPodSandboxStatsRequest, stream grpc.ServerStream) error {
	return sendBatches(s, "StreamPodSandboxStats", s.listSandboxStats(req.GetFilter()), func(batch []*runtimeapi.PodSandboxStats) error {
		return stream.SendMsg(&runtimeapi.ListPodSandboxStatsResponse{Stats: batch})
	})
}

// streamImages is ListImages in batches.
func (s *service) streamImages(req *runtimeapi.ListImagesRequest, stream grpc.ServerStream) error {
	return sendBatches(s, "StreamImages", s.rt.listImages(req.GetFilter()), func(batch []*runtimeapi.Image) error {
		return stream.SendMsg(&runtimeapi.ListImagesResponse{Images: batch})
	})
}
