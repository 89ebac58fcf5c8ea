// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// codec moves messages without decoding them.
type codec struct{}

// request is an encoded message to send.
type request []byte

// owned receives a message into memory of its own, which is exactly as large as the message and may
// be kept.
type owned struct{ data []byte }

// borrowed receives a message in the buffers that the transport read it into. Whoever receives it
// must free it.
type borrowed struct{ data mem.BufferSlice }

func (b *borrowed) free() {
	b.data.Free()
	b.data = nil
}

// Marshal implements grpc's encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(request)
	if !ok {
		return nil, fmt.Errorf("cri: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(r)}, nil
}

// Unmarshal implements grpc's encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *owned:
		m.data = data.Materialize()
	case *borrowed:
		data.Ref()
		m.data = data
	case *parcel:
		m.fill(data)
	default:
		return fmt.Errorf("cri: cannot receive a %T", v)
	}
	return nil
}

// Name implements grpc's encoding.CodecV2. The empty name makes the content type
// "application/grpc", which CRI-O's server wants exactly: of a client that writes
// "application/grpc+proto" it closes the connection.
func (codec) Name() string { return "" }
