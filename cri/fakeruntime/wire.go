// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// The hot replies (lists, statuses, events) are written directly in the wire format of the CRI, for
// two reasons: the server must cost little beside the transport, or it would hide a client's cost;
// and a broken runtime sends bytes refused by the generated encoder. The constant part of an item
// is encoded once, at its making, with the field numbers of the list item; a status is this blob
// renumbered, plus the mutable part. The tests compare all of it with the generated decoder.

// begin opens a message field; end closes it and puts its length in front.
func begin(b []byte, num protowire.Number) ([]byte, int) {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return b, len(b)
}

func end(b []byte, start int) []byte {
	n := len(b) - start
	size := protowire.SizeVarint(uint64(n))
	for range size {
		b = append(b, 0)
	}
	copy(b[start+size:], b[start:start+n])
	protowire.AppendVarint(b[start:start], uint64(n))
	return b
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

func appendEntry(b []byte, num protowire.Number, key, value string) []byte {
	b, start := begin(b, num)
	b = appendString(b, 1, key)
	b = appendString(b, 2, value)
	return end(b, start)
}

func appendMap(b []byte, num protowire.Number, m map[string]string) []byte {
	if len(m) == 0 {
		return b
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendEntry(b, num, k, m[k])
	}
	return b
}

// renumbering gives the new number of each field of a blob; 0 leaves it out.
type renumbering [16]protowire.Number

var (
	// runtime.v1.Container → runtime.v1.ContainerStatus
	containerToStatus = renumbering{1: 1, 3: 2, 4: 8, 5: 9, 7: 4, 8: 12, 9: 13, 10: 17}
	// runtime.v1.PodSandbox → runtime.v1.PodSandboxStatus
	sandboxToStatus = renumbering{1: 1, 2: 2, 4: 4, 5: 7, 6: 8, 7: 9}
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

// mapIn decodes the map field num of a blob.
func mapIn(blob []byte, field protowire.Number) map[string]string {
	out := map[string]string{}
	for len(blob) > 0 {
		num, typ, n := protowire.ConsumeTag(blob)
		m := protowire.ConsumeFieldValue(num, typ, blob[n:])
		if num == field {
			entry, _ := protowire.ConsumeBytes(blob[n:])
			k, v := entryIn(entry)
			out[k] = v
		}
		blob = blob[n+m:]
	}
	return out
}

func entryIn(entry []byte) (k, v string) {
	for len(entry) > 0 {
		num, _, n := protowire.ConsumeTag(entry)
		s, m := protowire.ConsumeBytes(entry[n:])
		if num == 1 {
			k = string(s)
		} else {
			v = string(s)
		}
		entry = entry[n+m:]
	}
	return k, v
}

// tail are the annotations of every object made by the direct methods, including padding to a real
// object's size: encoded once for all of them, with the field number of the list item and with the
// status's.
type tail struct{ forItem, forStatus []byte }

func (t *tail) item() []byte {
	if t == nil {
		return nil
	}
	return t.forItem
}

func (t *tail) status() []byte {
	if t == nil {
		return nil
	}
	return t.forStatus
}

func makeTail(itemField, statusField protowire.Number, annotations map[string]string) *tail {
	return &tail{appendMap(nil, itemField, annotations), appendMap(nil, statusField, annotations)}
}

const paddingKey = "fakeruntime.evented-pleg.io/padding"

// makeTails encodes a typical pod without padding to see the missing size.
func (rt *Runtime) makeTails() {
	sb := &sandbox{id: sampleText(idLength), name: "pod-000000", namespace: "default", uid: sampleText(36), ip: "198.18.100.100", createdAt: 1 << 60, pid: pidPerContainer}
	sb.labels = sb.withPodLabels(nil)
	sb.encode()
	c := &container{id: sampleText(idLength), name: "c0", sb: sb, image: WorkloadImage, userImage: WorkloadImage, imageRef: sampleText(71), createdAt: 1 << 60, user: rt.rootUser}
	c.labels, c.annotations = c.withPodLabels(nil), c.kubeletAnnotations()
	c.tail = makeTail(9, 13, commonAnnotations)
	c.encode()
	c.view = view{state: StateExited, startedAt: 1 << 60, finishedAt: 1 << 60}

	padded := func(annotations map[string]string, want, have int) map[string]string {
		m := maps.Clone(annotations)
		if pad := want - have - len(paddingKey) - 10; pad > 0 {
			m[paddingKey] = sampleText(pad)
		}
		return m
	}
	rt.containerTail = makeTail(9, 13, padded(commonAnnotations, rt.cfg.ContainerBytes, len(c.appendStatus(nil, c.view))))
	rt.sandboxTail = makeTail(6, 8, padded(map[string]string{}, rt.cfg.SandboxBytes, len(sb.appendStatus(nil, StateReady, sb.createdAt, true))))
}

func sampleText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return string(b)
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
