// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that ours falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The hot replies (lists, statuses, events) are written directly in the wire format of the CRI, for
// two reasons: the server must cost little beside the transport, or it would hide a client's cost;
// and a broken runtime sends bytes refused by the generated encoder. The constant part of an item
// is encoded once, at its making, with the field numbers of the list item; a status is this blob
// renumbered, plus the mutable part. The tests compare all of it with the generated decoder.

// appendMessage appends a message field.
func appendMessage(b []byte, num protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), message)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

// appendMap appends a map in the order of its keys, far quicker than the generated encoder.
func appendMap(b []byte, num protowire.Number, m map[string]string) []byte {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendMessage(b, num, appendString(appendString(nil, 1, k), 2, m[k]))
	}
	return b
}

// encode encodes a message without large maps. Equal messages have equal bytes.
func encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("fakeruntime: a %T cannot be encoded: %v: names and labels must be UTF-8", m, err))
	}
	return b
}

// decode is the inverse of encode.
func decode[M any, P interface {
	*M
	proto.Message
}](b []byte) P {
	m := P(new(M))
	if err := proto.Unmarshal(b, m); err != nil {
		panic(fmt.Sprintf("fakeruntime: a %T of our own is not valid: %v", m, err))
	}
	return m
}

// renumbering gives the new number of each field of a blob; 0 leaves it out.
type renumbering [16]protowire.Number

var (
	// runtime.v1.Container → runtime.v1.ContainerStatus
	containerToStatus = renumbering{
		1:  1,
		3:  2,
		4:  8,
		5:  9,
		7:  4,
		8:  12,
		9:  13,
		10: 17,
	}
	// runtime.v1.PodSandbox → runtime.v1.PodSandboxStatus
	sandboxToStatus = renumbering{
		1: 1,
		2: 2,
		4: 4,
		5: 7,
		6: 8,
		7: 9,
	}
)

// appendRenumbered copies the fields of a blob made by this package.
func appendRenumbered(b, blob []byte, table *renumbering) []byte {
	for len(blob) > 0 {
		num, typ, n := protowire.ConsumeTag(blob)
		m := protowire.ConsumeFieldValue(num, typ, blob[n:])
		if n < 0 || m < 0 {
			panic("fakeruntime: a blob of our own is not valid")
		}
		if to := table[num]; to != 0 {
			b = protowire.AppendTag(b, to, typ)
			b = append(b, blob[n:n+m]...)
		}
		blob = blob[n+m:]
	}
	return b
}

// tail is the part shared by all objects made by the direct methods, including padding to a real
// object's size: encoded once as fields of the list item and once as fields of the status.
type tail struct{ item, status []byte }

const paddingKey = "fakeruntime.evented-pleg.io/padding"

// containerTail pads the status of a container to the size.
func containerTail(size int) *tail {
	const plain = 1110 // bytes, with an empty padding
	annotations := maps.Clone(commonAnnotations)
	if size > plain {
		annotations[paddingKey] = strings.Repeat("x", size-plain)
	}
	return &tail{
		encode(&runtimeapi.Container{Annotations: annotations}),
		encode(
			&runtimeapi.ContainerStatus{
				Annotations: annotations,
				Mounts:      kubeletMounts,
				LogPath:     "/var/log/pods/default_pod/c/0.log",
			},
		),
	}
}

// sandboxTail pads the status of a sandbox to 1200 bytes, the size of a kubelet's.
var sandboxTail = func() *tail {
	annotations := map[string]string{paddingKey: strings.Repeat("x", 850)}
	return &tail{
		encode(&runtimeapi.PodSandbox{Annotations: annotations}),
		encode(
			&runtimeapi.PodSandboxStatus{
				Annotations: annotations,
				Linux:       namespaces(&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}),
			},
		),
	}
}()

// sendable reports whether labels and texts are UTF-8: gRPC sends, and takes, no other.
func sendable(labels map[string]string, texts ...string) bool {
	for k, v := range labels {
		texts = append(texts, k, v)
	}
	return !slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) })
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

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
