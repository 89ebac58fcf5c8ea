// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// From bytes to fields: messages are received without being decoded, the items of a list are found
// in the buffers of the transport, and the fields of a message are walked.

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// codec moves messages without decoding them.
type codec struct{}

// request is an encoded message to send.
type request []byte

// owned receives a message into memory of its own, which is exactly as large as the message and may
// be kept.
type owned struct{ data []byte }

// borrowed receives a message in the transport's own buffers. The receiver must free it.
type borrowed struct{ data mem.BufferSlice }

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
	case *eventBuffer:
		m.fill(data)
	default:
		return fmt.Errorf("cri: cannot receive a %T", v)
	}
	return nil
}

// Name implements grpc's encoding.CodecV2. The empty name makes the content type
// "application/grpc". CRI-O's server accepts nothing else: it closes connections with
// "application/grpc+proto".
func (codec) Name() string { return "" }

// maxKeptScratch bounds the scratch memory kept by a walker between messages.
const maxKeptScratch = 1 << 20

// segments walks the repeated message field of a list answer through the transport's buffers. An
// item within one buffer is handed out in place; an item that straddles buffers is first copied
// into a scratch buffer, which the walker keeps.
type segments struct {
	scratch []byte
	part    []byte // the unread rest of the present buffer
	later   mem.BufferSlice
	unread  int // unread bytes, in part and later
}

// walk calls visit with every occurrence of field number of the message in data, and skips other
// fields. An item is valid until visit returns. walk stops, and reports false, where the message is
// malformed or visit reports false.
func (s *segments) walk(data mem.BufferSlice, number protowire.Number, visit func(item []byte) bool) bool {
	s.part = nil
	s.later = data
	s.unread = data.Len()
	defer func() {
		s.part = nil
		s.later = nil
		if cap(s.scratch) > maxKeptScratch {
			s.scratch = nil
		}
	}()
	want := byte(protowire.EncodeTag(number, protowire.BytesType)) // list answers use numbers below 16
	for s.advance() {
		// The usual item: its tag and a length of two bytes lie in this buffer.
		if b := s.part; len(b) > 3 && b[0] == want && b[1] >= 0x80 && b[2] < 0x80 {
			if size := int(b[1]&0x7f) | int(b[2])<<7; size <= s.unread-3 {
				s.part = b[3:]
				s.unread -= 3
				if !visit(s.consume(size)) {
					return false
				}
				continue
			}
		}
		if !s.consumeField(number, visit) {
			return false
		}
	}
	return true
}

// advance makes part hold the next unread bytes and reports whether there are any.
func (s *segments) advance() bool {
	for len(s.part) == 0 && len(s.later) > 0 {
		s.part = s.later[0].ReadOnlyData()
		s.later = s.later[1:]
	}
	return len(s.part) > 0
}

// consume consumes the next n bytes, which must exist.
func (s *segments) consume(n int) []byte {
	s.unread -= n
	if n <= len(s.part) {
		item := s.part[:n:n]
		s.part = s.part[n:]
		return item
	}
	s.scratch = s.scratch[:0]
	for n > 0 && s.advance() {
		k := min(n, len(s.part))
		s.scratch = append(s.scratch, s.part[:k]...)
		s.part = s.part[k:]
		n -= k
	}
	return s.scratch
}

// consumeField consumes a field of any kind, also across buffers. Only unusual messages and fields
// that straddle buffers come here.
func (s *segments) consumeField(number protowire.Number, visit func(item []byte) bool) bool {
	tag, ok := s.uvarint()
	if num := tag >> 3; !ok || num < uint64(protowire.MinValidNumber) || num > uint64(protowire.MaxValidNumber) {
		return false
	}
	if protowire.Type(tag&7) == protowire.BytesType {
		size, ok := s.uvarint()
		if !ok || size > uint64(s.unread) {
			return false
		}
		item := s.consume(int(size))
		return protowire.Number(tag>>3) != number || visit(item)
	}
	// A field that no CRI list has. Finding its extent needs contiguous bytes.
	rest := s.consume(s.unread)
	n := protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), rest)
	if n < 0 {
		return false
	}
	// The copied bytes replace the buffers, so scratch must not be written again.
	s.part = rest[n:]
	s.later = nil
	s.unread = len(rest) - n
	s.scratch = nil
	return true
}

// uvarint consumes a varint, also across buffers.
func (s *segments) uvarint() (uint64, bool) {
	var b [10]byte
	for i := range b {
		if !s.advance() {
			return 0, false
		}
		b[i] = s.part[0]
		s.part = s.part[1:]
		s.unread--
		if b[i] < 0x80 {
			v, n := protowire.ConsumeVarint(b[:i+1])
			return v, n > 0
		}
	}
	return 0, false
}

// fields walks the fields of an encoded message in wire order. Fields of any number and type may
// appear any number of times. Of a singular field the last occurrence holds; occurrences of a
// singular message are merged by reading one after the other into the same variables.
type fields struct {
	rest []byte
	// num and wire are the present field's number and type.
	num  protowire.Number
	wire protowire.Type
	// varint is the value of a field of type VarintType.
	varint uint64
	// data is the value of a field of type BytesType, and aliases the message.
	data []byte
	// malformed: the walk ended early because the message is malformed.
	malformed bool
}

// next moves to the next field. At the end, and where the message is malformed, next reports false.
func (f *fields) next() bool {
	b := f.rest
	if len(b) == 0 {
		return false
	}
	tag := uint64(b[0])
	n := 1
	if tag >= 0x80 {
		tag, n = protowire.ConsumeVarint(b)
		if n < 0 {
			return f.fail()
		}
	}
	b = b[n:]
	if number := tag >> 3; number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return f.fail()
	}
	f.num = protowire.Number(tag >> 3)
	f.wire = protowire.Type(tag & 7)
	switch f.wire {
	case protowire.BytesType:
		size := uint64(0)
		n := 1
		if len(b) > 0 && b[0] < 0x80 {
			size = uint64(b[0])
		} else {
			size, n = protowire.ConsumeVarint(b)
			if n < 0 {
				return f.fail()
			}
		}
		b = b[n:]
		if size > uint64(len(b)) {
			return f.fail()
		}
		f.data = b[:size:size]
		f.rest = b[size:]
	case protowire.VarintType:
		if len(b) > 0 && b[0] < 0x80 {
			f.varint = uint64(b[0])
			f.rest = b[1:]
			return true
		}
		f.varint, n = protowire.ConsumeVarint(b)
		if n < 0 {
			return f.fail()
		}
		f.rest = b[n:]
	default:
		n = protowire.ConsumeFieldValue(f.num, f.wire, b)
		if n < 0 {
			return f.fail()
		}
		f.rest = b[n:]
	}
	return true
}

func (f *fields) fail() bool {
	f.malformed = true
	f.rest = nil
	return false
}

// isBytes and isVarint report whether the present field has number n and the given type. A known
// number with another type is an unknown field, as in the generated decoder.
func (f *fields) isBytes(n protowire.Number) bool { return f.num == n && f.wire == protowire.BytesType }
func (f *fields) isVarint(n protowire.Number) bool {
	return f.num == n && f.wire == protowire.VarintType
}

// mapEntry reads an entry of a map<string, string>. A missing key or value is the empty string.
func mapEntry(b []byte) (key, value []byte, ok bool) {
	if k := usualEntry(b); k > 0 {
		return b[2:k:k], b[k+2:], true
	}
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			key = f.data
		case f.isBytes(2):
			value = f.data
		}
	}
	return key, value, !f.malformed
}

// usualEntry returns the end of the key in an entry of the form that serializers write: the key,
// then the value, both shorter than 128 bytes; 0 for any other form.
func usualEntry(b []byte) (key int) {
	if len(b) < 4 || b[0] != 1<<3|byte(protowire.BytesType) || b[1] >= 0x80 {
		return 0
	}
	k := 2 + int(b[1])
	if k+2 > len(b) || b[k] != 2<<3|byte(protowire.BytesType) || b[k+1] >= 0x80 || k+2+int(b[k+1]) != len(b) {
		return 0
	}
	return k
}

// mergeOccurrence merges a further occurrence of a singular message into those before, by
// concatenating the encoded messages. Merged is false for the first two: they are in the memory of
// the message around them, and what is merged has memory of its own, with room for more.
func mergeOccurrence(before, occurrence []byte, merged *bool) []byte {
	switch {
	case before == nil:
		return occurrence
	case !*merged:
		*merged = true
		before = slices.Clip(before)
	}
	return append(before, occurrence...)
}
