// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxKeptScratch bounds the scratch memory that a walker keeps from one message to the next.
const maxKeptScratch = 1 << 20

// segments walks the repeated message field of a list answer through the buffers that the transport
// read it into. An item that lies in one buffer is handed out where it lies; one that straddles
// buffers is first put together in a scratch buffer, which the walker keeps.
type segments struct {
	scratch []byte
	part    []byte // the unread rest of the present buffer
	later   mem.BufferSlice
	left    int // unread bytes, in part and later
}

// walk calls visit with every occurrence of field number of the message in data, and skips other
// fields. An item is valid until visit returns. It stops, and reports false, where the message is
// malformed or visit reports false.
func (s *segments) walk(data mem.BufferSlice, number protowire.Number, visit func(item []byte) bool) bool {
	s.part, s.later, s.left = nil, data, data.Len()
	defer func() {
		s.part, s.later = nil, nil
		if cap(s.scratch) > maxKeptScratch {
			s.scratch = nil
		}
	}()
	want := byte(protowire.EncodeTag(number, protowire.BytesType)) // list answers use numbers below 16
	for s.more() {
		// The usual item: its tag and a length of two bytes lie in this buffer.
		if b := s.part; len(b) > 3 && b[0] == want && b[1] >= 0x80 && b[2] < 0x80 {
			if size := int(b[1]&0x7f) | int(b[2])<<7; size <= s.left-3 {
				s.part, s.left = b[3:], s.left-3
				if !visit(s.take(size)) {
					return false
				}
				continue
			}
		}
		if !s.one(number, visit) {
			return false
		}
	}
	return true
}

// more makes part hold the next unread bytes and reports whether there are any.
func (s *segments) more() bool {
	for len(s.part) == 0 && len(s.later) > 0 {
		s.part, s.later = s.later[0].ReadOnlyData(), s.later[1:]
	}
	return len(s.part) > 0
}

// take consumes the next n bytes, which must exist.
func (s *segments) take(n int) []byte {
	s.left -= n
	if n <= len(s.part) {
		item := s.part[:n:n]
		s.part = s.part[n:]
		return item
	}
	s.scratch = s.scratch[:0]
	for n > 0 && s.more() {
		k := min(n, len(s.part))
		s.scratch = append(s.scratch, s.part[:k]...)
		s.part, n = s.part[k:], n-k
	}
	return s.scratch
}

// one consumes one field of any kind, wherever it lies. Only unusual messages and fields that
// straddle buffers come here.
func (s *segments) one(number protowire.Number, visit func(item []byte) bool) bool {
	tag, ok := s.uvarint()
	if num := tag >> 3; !ok || num < uint64(protowire.MinValidNumber) || num > uint64(protowire.MaxValidNumber) {
		return false
	}
	if protowire.Type(tag&7) == protowire.BytesType {
		size, ok := s.uvarint()
		if !ok || size > uint64(s.left) {
			return false
		}
		item := s.take(int(size))
		return protowire.Number(tag>>3) != number || visit(item)
	}
	// A field that no CRI list has. Its extent is found in one piece.
	rest := s.take(s.left)
	n := protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), rest)
	if n < 0 {
		return false
	}
	// What was put together replaces the buffers, so scratch must not be written again.
	s.part, s.later, s.left, s.scratch = rest[n:], nil, len(rest)-n, nil
	return true
}

// uvarint consumes a varint, wherever it lies.
func (s *segments) uvarint() (uint64, bool) {
	var b [10]byte
	for i := range b {
		if !s.more() {
			return 0, false
		}
		b[i] = s.part[0]
		s.part, s.left = s.part[1:], s.left-1
		if b[i] < 0x80 {
			v, n := protowire.ConsumeVarint(b[:i+1])
			return v, n > 0
		}
	}
	return 0, false
}
