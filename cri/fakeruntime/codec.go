// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that ours falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// reply is a message in wire format. Only the codec of [Runtime.Serve] can send it.
type reply struct{ wire mem.BufferSlice }

// encoded is the reply of one piece.
func encoded(message []byte) *reply { return &reply{mem.BufferSlice{mem.SliceBuffer(message)}} }

// codec is the protobuf codec, plus reply.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*reply); ok {
		wire := r.wire
		r.wire = nil
		return wire, nil
	}
	return c.CodecV2.Marshal(v)
}

// pages are a long message in buffers of gRPC's pool, which keeps none larger than pageSize.
type pages struct {
	out mem.BufferSlice
	buf *[]byte // the last one, not in out yet
}

const pageSize = 1 << 20

// room returns the last buffer, with room for size bytes. The caller appends, and stores the result
// in buf.
func (p *pages) room(size int) []byte {
	if p.buf == nil || len(*p.buf)+size > cap(*p.buf) {
		next := 4 * size
		if p.buf != nil {
			next = pageSize
		}
		p.done()
		p.buf = mem.DefaultBufferPool().Get(max(next, size))
		*p.buf = (*p.buf)[:0]
	}
	return *p.buf
}

// done returns the whole message.
func (p *pages) done() mem.BufferSlice {
	if p.buf != nil {
		p.out = append(p.out, mem.NewBuffer(p.buf, mem.DefaultBufferPool()))
	}
	return p.out
}

// filler is the padding of oversized events: unknown fields that share a buffer, so a huge message
// costs no memory here.
var filler = func() []byte {
	b := protowire.AppendTag(nil, 1000, protowire.BytesType)
	return protowire.AppendBytes(b, make([]byte, 64<<10))
}()

// padded is the message of an event, with its padding.
func padded(ev *event) mem.BufferSlice {
	out := mem.BufferSlice{mem.SliceBuffer(ev.wire)}
	for n := len(ev.wire); n < ev.pad; n += len(filler) {
		out = append(out, mem.SliceBuffer(filler))
	}
	return out
}
