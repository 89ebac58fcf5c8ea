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

// pageSize is the size of a long list's buffers, a size kept by gRPC's pool.
const pageSize = 1 << 20

// pages collects the items of a list into pooled buffers.
type pages struct {
	out mem.BufferSlice
	buf *[]byte
	b   []byte
}

// newPages expects total bytes.
func newPages(total int) *pages {
	p := &pages{}
	p.open(min(total, pageSize))
	return p
}

func (p *pages) open(size int) {
	p.buf = mem.DefaultBufferPool().Get(size)
	p.b = (*p.buf)[:0]
}

// room makes sure that size bytes can be appended to p.b without growing it.
func (p *pages) room(size int) {
	if len(p.b)+size > cap(p.b) && len(p.b) > 0 {
		p.flush()
		p.open(max(pageSize, size))
	}
}

// add appends an item as field num; put writes the item, in size bytes at most.
func (p *pages) add(num protowire.Number, size int, put func([]byte) []byte) {
	p.room(size)
	b, start := begin(p.b, num)
	p.b = end(put(b), start)
}

// addRow appends an item of two parts and a state as field 1: add for the many items without
// faults.
func (p *pages) addRow(blob, tail []byte, stateField protowire.Number, state int64) {
	size := len(blob) + len(tail)
	p.room(size + rowMargin)
	if state != 0 {
		size += 2 // field numbers and states are small
	}
	b := protowire.AppendTag(p.b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = append(b, blob...)
	b = append(b, tail...)
	p.b = appendInt(b, stateField, state)
}

func (p *pages) flush() {
	*p.buf = p.b
	p.out = append(p.out, mem.NewBuffer(p.buf, mem.DefaultBufferPool()))
}

func (p *pages) done() mem.BufferSlice {
	p.flush()
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
