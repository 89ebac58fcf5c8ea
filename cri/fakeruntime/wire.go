// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// appendMap appends a map in the order of its keys, far quicker than the generated encoder.
func appendMap(b []byte, num protowire.Number, m map[string]string) []byte {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		var start int
		b, start = begin(b, num)
		b = appendString(b, 1, k)
		b = end(appendString(b, 2, m[k]), start)
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

// tail is the part shared by all objects made by the direct methods, including padding to a real
// object's size: encoded once as fields of the list item and once as fields of the status.
type tail struct{ item, status []byte }

const paddingKey = "fakeruntime.evented-pleg.io/padding"

// makeTails encodes a typical pod without padding to see the missing size.
func (rt *Runtime) makeTails() {
	containerTail := func(annotations map[string]string) *tail {
		return &tail{
			encode(&runtimeapi.Container{Annotations: annotations}),
			encode(&runtimeapi.ContainerStatus{Annotations: annotations, Mounts: kubeletMounts, LogPath: "/var/log/pods/default_pod/c/0.log"}),
		}
	}
	sandboxTail := func(annotations map[string]string) *tail {
		return &tail{
			encode(&runtimeapi.PodSandbox{Annotations: annotations}),
			encode(&runtimeapi.PodSandboxStatus{Annotations: annotations, Linux: namespaces(&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER})}),
		}
	}
	sb := &sandbox{id: sampleText(idLength), name: "pod-000000", namespace: "default", uid: sampleText(36), ip: "198.18.100.100", createdAt: 1 << 60}
	sb.labels, sb.tail = sb.withPodLabels(nil), sandboxTail(nil)
	sb.encode()
	c := &container{id: sampleText(idLength), name: "c0", sb: sb, image: WorkloadImage, userImage: WorkloadImage, imageRef: sampleText(71), createdAt: 1 << 60, user: rt.rootUser}
	c.labels, c.annotations = c.withPodLabels(nil), c.kubeletAnnotations()
	c.tail = containerTail(commonAnnotations)
	c.encode()
	c.view = view{state: StateExited, startedAt: 1 << 60, finishedAt: 1 << 60}

	padded := func(annotations map[string]string, want, have int) map[string]string {
		m := maps.Clone(annotations)
		if pad := want - have - len(paddingKey) - 10; pad > 0 {
			m[paddingKey] = sampleText(pad)
		}
		return m
	}
	rt.containerTail = containerTail(padded(commonAnnotations, rt.cfg.ContainerBytes, len(c.appendStatus(nil, c.view))))
	rt.sandboxTail = sandboxTail(padded(map[string]string{}, rt.cfg.SandboxBytes, len(sb.appendStatus(nil, StateReady, sb.createdAt))))
}

func sampleText(n int) string { return strings.Repeat("x", n) }

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
