// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"math/rand/v2"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// mangle returns a valid encoding unlike any serializer's: fields in any order, singular fields
// several times, singular messages in parts, unknown fields, known fields of a wrong type, overlong
// varints. Only the generated decoder defines its meaning, which may differ from b's.
func mangle(r *rand.Rand, md protoreflect.MessageDescriptor, b []byte) []byte {
	var chunks [][]byte
	for len(b) > 0 {
		num, typ, tagLen := protowire.ConsumeTag(b)
		n := protowire.ConsumeFieldValue(num, typ, b[tagLen:])
		value := b[tagLen : tagLen+n]
		b = b[tagLen+n:]
		fd := md.Fields().ByNumber(num)
		singular := fd != nil && !fd.IsList() && !fd.IsMap()
		switch {
		case typ == protowire.BytesType:
			data, _ := protowire.ConsumeBytes(value)
			if fd != nil && fd.Message() != nil {
				data = mangle(r, fd.Message(), data)
				if singular && r.IntN(4) == 0 {
					chunks = append(chunks, bytesField(r, num, mangle(r, fd.Message(), data)))
				}
			} else if singular && r.IntN(4) == 0 {
				chunks = append(chunks, bytesField(r, num, []byte("decoy")))
			}
			chunks = append(chunks, bytesField(r, num, data))
		case typ == protowire.VarintType && singular && r.IntN(4) == 0:
			chunks = append(chunks, varintField(r, num, r.Uint64N(5)))
			fallthrough
		default:
			chunks = append(chunks, append(tag(r, num, typ), value...))
		}
		if r.IntN(8) == 0 {
			chunks = append(chunks, protowire.AppendFixed32(tag(r, num, protowire.Fixed32Type), 7)) // no field of these messages has this type
		}
	}
	for range r.IntN(3) {
		chunks = append(chunks, unknownField(r))
	}
	if r.IntN(2) == 0 {
		r.Shuffle(len(chunks), func(i, j int) { chunks[i], chunks[j] = chunks[j], chunks[i] })
	}
	var out []byte
	for _, c := range chunks {
		out = append(out, c...)
	}
	return out
}

// padded appends a varint, at times longer than need be.
func padded(r *rand.Rand, b []byte, v uint64) []byte {
	b = protowire.AppendVarint(b, v)
	if r.IntN(8) == 0 && v < 1<<28 {
		b[len(b)-1] |= 0x80
		b = append(b, 0x80, 0)
	}
	return b
}

func tag(r *rand.Rand, num protowire.Number, typ protowire.Type) []byte {
	return padded(r, nil, protowire.EncodeTag(num, typ))
}

func bytesField(r *rand.Rand, num protowire.Number, data []byte) []byte {
	return append(padded(r, tag(r, num, protowire.BytesType), uint64(len(data))), data...)
}

func varintField(r *rand.Rand, num protowire.Number, v uint64) []byte {
	return padded(r, tag(r, num, protowire.VarintType), v)
}

func unknownField(r *rand.Rand) []byte {
	num := protowire.Number(900 + r.IntN(9000))
	switch r.IntN(5) {
	case 0:
		return varintField(r, num, r.Uint64())
	case 1:
		return protowire.AppendFixed32(tag(r, num, protowire.Fixed32Type), r.Uint32())
	case 2:
		return protowire.AppendFixed64(tag(r, num, protowire.Fixed64Type), r.Uint64())
	case 3:
		return bytesField(r, num, []byte("unknown"))
	}
	inner := varintField(r, 1, 3)
	return append(append(tag(r, num, protowire.StartGroupType), inner...), tag(r, num, protowire.EndGroupType)...)
}

// mangled encodes m and mangles the result.
func mangled(r *rand.Rand, m proto.Message) []byte {
	return mangle(r, m.ProtoReflect().Descriptor(), encode(m))
}

// cut returns data in buffers of at most size bytes, like a transport.
func cut(data []byte, size int) (out mem.BufferSlice) {
	size = max(size, 1)
	for len(data) > size {
		out = append(out, mem.SliceBuffer(data[:size:size]))
		data = data[size:]
	}
	return append(out, mem.SliceBuffer(data))
}
