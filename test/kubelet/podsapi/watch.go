// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package podsapi is a client of the kubelet's own pods API (feature gate PodsAPI): it receives
// every status at the moment when the kubelet's status manager takes it, so that a test can time
// the kubelet without polling.
//
// # Model
//
// [Watch] decodes the two fields of a WatchPodsEvent by hand, without a module of a certain
// Kubernetes version.
//
// # Concurrency
//
// Watch runs in its caller's goroutine and calls back there.
//
// # Errors
//
// Watch returns why the stream ended. The kubelet drops slow watchers.
package podsapi

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
)

// Type is the type of an event (WatchPodsEvent.type).
type Type int

// Types of events.
const (
	Added Type = iota + 1
	Modified
	Deleted
	Synced
)

// raw hands messages over as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Watch calls told for every event until the stream or ctx ends. Pod is nil with Synced.
func Watch(ctx context.Context, socket string, told func(Type, *corev1.Pod)) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/v1alpha1.Pods/WatchPods", grpc.ForceCodecV2(raw{}))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(new([]byte)); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		what, pod, err := decode(message)
		if err != nil {
			return err
		}
		told(what, pod)
	}
}

func decode(message []byte) (what Type, pod *corev1.Pod, err error) {
	for len(message) > 0 {
		num, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, nil, fmt.Errorf("podsapi: event: %w", protowire.ParseError(n))
		}
		message = message[n:]
		switch {
		case num == 1 && kind == protowire.VarintType:
			v, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return 0, nil, fmt.Errorf("podsapi: event type: %w", protowire.ParseError(n))
			}
			what, message = Type(v), message[n:]
		case num == 2 && kind == protowire.BytesType:
			v, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return 0, nil, fmt.Errorf("podsapi: pod: %w", protowire.ParseError(n))
			}
			pod = new(corev1.Pod)
			if err := pod.Unmarshal(v); err != nil {
				return 0, nil, fmt.Errorf("podsapi: pod: %w", err)
			}
			message = message[n:]
		default:
			n := protowire.ConsumeFieldValue(num, kind, message)
			if n < 0 {
				return 0, nil, fmt.Errorf("podsapi: field %d: %w", num, protowire.ParseError(n))
			}
			message = message[n:]
		}
	}
	return what, pod, nil
}
