// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mostListed is the number of items in a list beyond which the list is an error: a node has some
// hundred pods, and each item takes memory beside an agent.
const mostListed = 20_000

// thin removes from a list all parts without use for an examination, above all the annotations:
// each pod may have 256 KiB of annotations.
func thin[Q, A any](call func(context.Context, Q, ...grpc.CallOption) (A, error)) func(context.Context, Q, ...grpc.CallOption) (A, error) {
	return func(ctx context.Context, request Q, options ...grpc.CallOption) (A, error) {
		return call(ctx, request, append(options, grpc.ForceCodecV2(thinCodec{}))...)
	}
}

// thinCodec decodes lists item by item, and keeps a few fields of each.
type thinCodec struct{}

// Name implements encoding.CodecV2. The name goes on the wire, and CRI-O closes connections with a
// name.
func (thinCodec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (thinCodec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (thinCodec) Unmarshal(data mem.BufferSlice, v any) error {
	switch list := v.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		return eachItem(data, []protowire.Number{1, 2, 3, 4}, func(raw []byte) error {
			var p runtimeapi.PodSandbox
			list.Items = append(list.Items, &p)
			return proto.Unmarshal(raw, &p)
		})
	case *runtimeapi.ListContainersResponse:
		return eachItem(data, []protowire.Number{1, 2, 3, 6, 7}, func(raw []byte) error {
			var c runtimeapi.Container
			list.Containers = append(list.Containers, &c)
			return proto.Unmarshal(raw, &c)
		})
	}
	return fmt.Errorf("no list: %T", v)
}

// eachItem calls take with the given fields of each item of a list, in which the items are field 1.
func eachItem(data mem.BufferSlice, fields []protowire.Number, take func(raw []byte) error) error {
	r := data.Reader()
	defer r.Close()
	var item, kept []byte
	for n := 0; r.Remaining() > 0; n++ {
		if n == mostListed {
			return fmt.Errorf("a list of more than %d items", mostListed)
		}
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return io.ErrUnexpectedEOF
		}
		number, kind := protowire.DecodeTag(tag)
		if kind != protowire.BytesType {
			return fmt.Errorf("a list with field %d of type %d", number, kind)
		}
		size, err := binary.ReadUvarint(r)
		if err != nil || size > uint64(r.Remaining()) {
			return io.ErrUnexpectedEOF
		}
		if number != 1 { // of a later version
			_, err = io.CopyN(io.Discard, r, int64(size))
			if err != nil {
				return err
			}
			continue
		}
		item = slices.Grow(item[:0], int(size))[:size]
		_, err = io.ReadFull(r, item)
		if err != nil {
			return err
		}
		kept, err = keep(kept[:0], item, fields)
		if err != nil {
			return err
		}
		err = take(kept)
		if err != nil {
			return err
		}
	}
	return nil
}

// keep appends the given fields of a message.
func keep(to, message []byte, fields []protowire.Number) ([]byte, error) {
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if slices.Contains(fields, number) {
			to = append(to, message[:n]...)
		}
		message = message[n:]
	}
	return to, nil
}
