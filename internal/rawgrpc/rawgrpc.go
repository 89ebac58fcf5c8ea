// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package rawgrpc forwards messages of gRPC without decoding any.
//
// # Concurrency
//
// The codec has no state. A Frame has one owner.
package rawgrpc

import "google.golang.org/grpc/mem"

// MaxMessage is a receive limit in bytes above the messages of any runtime, so that the limits of
// clients are their own.
const MaxMessage = 256 << 20

// Frame holds the bytes of a message.
type Frame struct{ Data []byte }

// Codec hands messages through as *[Frame]. It has no name, since the name goes on the wire, and
// CRI-O closes connections with a name.
type Codec struct{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*Frame).Data)}, nil
}

// Unmarshal implements encoding.CodecV2. It copies, because the caller frees data, and a frame may
// wait.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*Frame).Data = data.Materialize()
	return nil
}
