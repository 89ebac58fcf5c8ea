// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rawCodec moves encoded messages.
type rawCodec struct{}

// Marshal implements grpc's encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal implements grpc's encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name implements grpc's encoding.CodecV2.
func (rawCodec) Name() string { return "" }

// Serve answers on the listener until it is closed.
func (n *Node) Serve(l net.Listener) error {
	return grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxSendMsgSize(1<<30), grpc.UnknownServiceHandler(n.handle)).Serve(l)
}

func (n *Node) handle(_ any, s grpc.ServerStream) error {
	var req []byte
	if err := s.RecvMsg(&req); err != nil {
		return err
	}
	one := func(answer []byte) error { return s.SendMsg(answer) }
	path, _ := grpc.MethodFromServerStream(s)
	switch path {
	case runtimeapi.RuntimeService_Version_FullMethodName:
		return one(encode(&runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "peer", RuntimeVersion: "v1.0.0", RuntimeApiVersion: "v1"}))
	case runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:
		var r runtimeapi.ListPodSandboxRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return err
		}
		uid, id := r.GetFilter().GetLabelSelector()[labelUID], r.GetFilter().GetId()
		if uid == "" && id == "" {
			return one(n.list(sandboxes))
		}
		return one(n.matching(sandboxes, uid, id, ""))
	case runtimeapi.RuntimeService_ListContainers_FullMethodName:
		var r runtimeapi.ListContainersRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return err
		}
		uid, id, sandbox := r.GetFilter().GetLabelSelector()[labelUID], r.GetFilter().GetId(), r.GetFilter().GetPodSandboxId()
		if uid == "" && id == "" && sandbox == "" {
			return one(n.list(containers))
		}
		return one(n.matching(containers, uid, id, sandbox))
	case runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName:
		var r runtimeapi.PodSandboxStatusRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return err
		}
		return n.answerStatus(r.PodSandboxId, one)
	case runtimeapi.RuntimeService_ContainerStatus_FullMethodName:
		var r runtimeapi.ContainerStatusRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return err
		}
		return n.answerStatus(r.ContainerId, one)
	case runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName, runtimeapi.RuntimeService_StreamContainers_FullMethodName:
		if !n.config.Streams {
			return status.Error(codes.Unimplemented, "this runtime has no streaming lists")
		}
		kind := sandboxes
		if path == runtimeapi.RuntimeService_StreamContainers_FullMethodName {
			kind = containers
		}
		for _, b := range n.batches(kind) {
			if err := s.SendMsg(b); err != nil {
				return err
			}
		}
		return nil
	case runtimeapi.RuntimeService_GetContainerEvents_FullMethodName:
		return n.events.serve(s.Context(), one)
	}
	return status.Errorf(codes.Unimplemented, "this runtime does not know %s", path)
}

func (n *Node) answerStatus(id string, one func([]byte) error) error {
	if answer := n.status(id); answer != nil {
		return one(answer)
	}
	return status.Errorf(codes.NotFound, "no such ID: %s", id)
}
