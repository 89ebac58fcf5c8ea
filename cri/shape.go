// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The check of an encoded status before storage: whole, well-formed to its last field, and without
// memory for fields unknown to the CRI.

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shape is the structure of a CRI message, from the CRI's own descriptor, by which a message is
// checked to its last field without being decoded. A shape is immutable.
type shape struct {
	// fields are indexed by number.
	fields []fieldShape
	// omits: some field is omitted.
	omits bool
}

// fieldShape describes a field of a shape.
type fieldShape struct {
	known bool
	wire  protowire.Type
	// message is the shape of a message field, nil for other fields.
	message *shape
	// entry: the message is an entry of a map from strings to strings.
	entry bool
	// several: the field is a list or a map.
	several bool
	// packed: the field is a list of varints, which may be sent in one piece.
	packed bool
	// omitted: the field is checked, and left out of what is stored.
	omitted bool
}

// The shapes of listed items and of statuses.
var (
	shapeOfSandbox         = shapeOnce((*runtimeapi.PodSandbox)(nil))
	shapeOfContainer       = shapeOnce((*runtimeapi.Container)(nil))
	shapeOfSandboxStatus   = shapeOnce((*runtimeapi.PodSandboxStatus)(nil))
	shapeOfContainerStatus = shapeOnce((*runtimeapi.ContainerStatus)(nil))

	// The shapes of statuses whose annotations are not kept: see [Config.Annotations].
	leanSandboxStatus   = shapeWithout(shapeOfSandboxStatus, annotationsOfPodSandboxStatus)
	leanContainerStatus = shapeWithout(shapeOfContainerStatus, annotationsOfContainerStatus)
)

// The numbers of the annotations fields.
const (
	annotationsOfPodSandboxStatus = 8
	annotationsOfContainerStatus  = 13
)

// shapeWithout returns a shape with a field that is checked like the others and not kept.
func shapeWithout(of func() *shape, field int) func() *shape {
	return sync.OnceValue(func() *shape {
		s := &shape{fields: slices.Clone(of().fields), omits: true}
		s.fields[field].omitted = true
		return s
	})
}

// statusShapes returns the shapes of the statuses to store.
func (c *Client) statusShapes() (sandbox, container *shape) {
	if c.config.Annotations {
		return shapeOfSandboxStatus(), shapeOfContainerStatus()
	}
	return leanSandboxStatus(), leanContainerStatus()
}

func shapeOnce(m proto.Message) func() *shape {
	return sync.OnceValue(func() *shape {
		return shapeOf(m.ProtoReflect().Descriptor(), make(map[protoreflect.FullName]*shape))
	})
}

// shapeOf returns the shape of a message. Known holds those made so far.
func shapeOf(md protoreflect.MessageDescriptor, known map[protoreflect.FullName]*shape) *shape {
	if s := known[md.FullName()]; s != nil {
		return s
	}
	s := new(shape)
	known[md.FullName()] = s
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if n := int(fd.Number()); n >= len(s.fields) {
			s.fields = append(s.fields, make([]fieldShape, n+1-len(s.fields))...)
		}
		f := fieldShape{
			known:   true,
			wire:    wireOf(fd.Kind()),
			several: fd.Cardinality() == protoreflect.Repeated,
		}
		if fd.Kind() == protoreflect.MessageKind {
			f.message = shapeOf(fd.Message(), known)
			f.entry = fd.IsMap() && fd.MapKey().Kind() == protoreflect.StringKind && fd.MapValue().Kind() == protoreflect.StringKind
		}
		f.packed = fd.IsList() && f.wire == protowire.VarintType
		s.fields[fd.Number()] = f
	}
	return s
}

// wireOf returns how a field of a kind is sent.
func wireOf(kind protoreflect.Kind) protowire.Type {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	}
	return protowire.VarintType
}

// noField is the shape of every field that its message lacks.
var noField fieldShape

// field returns the shape of the present field, which is not known if its number or wire type is
// not.
func (s *shape) field(f *fields) *fieldShape {
	if uint64(f.num) >= uint64(len(s.fields)) {
		return &noField
	}
	k := &s.fields[f.num]
	if k.wire != f.wire && !(k.packed && f.wire == protowire.BytesType) {
		return &noField
	}
	return k
}

// identityEnd is the last of the fields that tell which sandbox or container a status is of, and
// its state: see [identity].
const identityEnd = 3

// outOfOrder stands among the set fields, as no field has number 0, for a message in which a
// field up to identityEnd follows a later one. Encoders write fields in order, and need not.
const outOfOrder = 1 << 0

// check reports whether raw is well-formed throughout, how many bytes belong to unknown and omitted
// fields, and which known fields are set, by number, those from 64 on left out: a last number other
// than 0, bytes that are not empty.
func (s *shape) check(raw []byte) (unknown int, set uint64, ok bool) {
	f := fields{rest: raw}
	highest := protowire.Number(0)
	for before := len(raw); f.next(); before = len(f.rest) {
		k := s.field(&f)
		if f.num <= identityEnd && highest > identityEnd {
			set |= outOfOrder
		}
		highest = max(highest, f.num)
		if k.known && f.wire == protowire.VarintType && f.varint == 0 {
			set &^= 1 << f.num
		} else if k.known && (f.wire != protowire.BytesType || len(f.data) > 0) {
			set |= 1 << f.num
		}
		inner := 0
		ok := true
		switch {
		case k.message != nil:
			inner, ok = k.checkMessage(f.data)
		case k.packed && f.wire == protowire.BytesType:
			ok = checkPacked(f.data)
		}
		switch {
		case !ok:
			return 0, 0, false
		case !k.known || k.omitted:
			unknown += before - len(f.rest)
		default:
			unknown += inner
		}
	}
	return unknown, set, !f.malformed
}

// checkMessage reports whether the message in a field is well-formed throughout, and how many of
// its bytes belong to unknown and omitted fields. Entries of maps, of which a status has dozens,
// nearly always have the usual form.
func (k *fieldShape) checkMessage(data []byte) (unknown int, ok bool) {
	if k.entry && usualEntry(data) > 0 {
		return 0, true
	}
	unknown, _, ok = k.message.check(data)
	return unknown, ok
}

// checkPacked reports whether a list of varints in one piece is well-formed.
func checkPacked(data []byte) bool {
	for len(data) > 0 {
		_, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return false
		}
		data = data[n:]
	}
	return true
}

// appendKnown appends a message that has passed check without its unknown bytes, as counted by
// check. Between them, and after the last, everything is copied at once.
func (s *shape) appendKnown(dst, raw []byte, unknown int) []byte {
	f := fields{rest: raw}
	done := 0 // up to here, raw is in dst or left out
	for at := 0; unknown > 0 && f.next(); {
		from := at
		at = len(raw) - len(f.rest)
		k := s.field(&f)
		left := 0
		switch {
		case !k.known || k.omitted:
			left = at - from
			dst = append(dst, raw[done:from]...)
			done = at
		case k.message != nil:
			left, _ = k.checkMessage(f.data)
			if left > 0 {
				dst = append(dst, raw[done:from]...)
				dst = protowire.AppendTag(dst, f.num, protowire.BytesType)
				dst = protowire.AppendBytes(dst, k.message.appendKnown(nil, f.data, left))
				done = at
			}
		}
		unknown -= left
	}
	return append(dst, raw[done:]...)
}

// rawStatus is an encoded status that is not checked yet.
type rawStatus struct {
	raw   []byte
	shape *shape
}

// copied returns the status as it is stored, in memory of its own; nil if it may not be stored: see
// [checkStatus].
func (r rawStatus) copied() []byte {
	p, good := checkStatus(r.raw, r.shape)
	if !good {
		return nil
	}
	return p.copied()
}

// checkedStatus is an encoded status on its way into a PodStatus.
type checkedStatus struct {
	raw     []byte
	shape   *shape
	unknown int  // bytes of fields unknown to the CRI, and of omitted ones
	whole   bool // well-formed, which an incomplete status may be, too

	// disordered: the fields of the identity do not come first, as they do in what is stored.
	disordered bool
}

// copied returns the known fields of a whole status, those of its identity first, in memory of
// their own.
func (p *checkedStatus) copied() []byte {
	raw := p.raw
	if p.disordered {
		raw = identityFirst(raw)
	}
	return p.shape.appendKnown(make([]byte, 0, len(raw)-p.unknown), raw, p.unknown)
}

// identityFirst returns a well-formed message with its fields up to identityEnd before all others,
// which means the same: only the order of fields with one number counts.
func identityFirst(raw []byte) []byte {
	first := make([]byte, 0, len(raw))
	var others []byte
	f := fields{rest: raw}
	for at := 0; f.next(); at = len(raw) - len(f.rest) {
		field := raw[at : len(raw)-len(f.rest)]
		if f.num <= identityEnd {
			first = append(first, field...)
		} else {
			others = append(others, field...)
		}
	}
	return append(first, others...)
}

// setByAll are the fields set by every runtime: metadata (2) and created_at (4), with the same
// numbers in PodSandboxStatus and ContainerStatus. The kubelet's client wants them, too.
const setByAll = 1<<2 | 1<<4

// checkStatus reports whether an encoded status may be stored: whole, well-formed to its last
// field, and complete. A partly readable status is as good as none: its phase may be right, so
// nothing would ever cause another read.
func checkStatus(raw []byte, of *shape) (checkedStatus, bool) {
	unknown, set, ok := of.check(raw)
	p := checkedStatus{
		raw:        raw,
		shape:      of,
		unknown:    unknown,
		whole:      ok,
		disordered: set&outOfOrder != 0,
	}
	return p, ok && set&setByAll == setByAll
}

// maxSlack is how many unused bytes may stay in memory because they share a message with statuses.
const maxSlack = 512

// retain returns the bytes to store of the statuses of a message of the given size: in place if
// the message holds little else, and the fields are in order, otherwise a copy of the known ones.
// So a runtime cannot fill the memory with bytes that nobody reads.
func retain(parts []checkedStatus, message int) (kept [][]byte) {
	slack := message
	for _, p := range parts {
		slack -= len(p.raw) - p.unknown
	}
	kept = make([][]byte, len(parts))
	for i, p := range parts {
		kept[i] = p.raw
		omits := p.shape.omits && p.unknown > 0
		if omits || p.disordered || slack > maxSlack+message/8 {
			kept[i] = p.copied()
		}
	}
	return kept
}
