// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// nodePod returns a sandbox and its containers with about as many labels, annotations and mounts as
// the kubelet sets.
func nodePod(pod, containers int, state runtimeapi.ContainerState) (*runtimeapi.PodSandbox, []*runtimeapi.Container) {
	uid := fmt.Sprintf("%08x-1c2d-4e5f-8a9b-%012x", pod, pod)
	name := fmt.Sprintf("workload-%d-7d9f8b6c5-%05x", pod%97, pod)
	namespace := fmt.Sprintf("team-%d", pod%17)
	sandboxID := fmt.Sprintf("%064x", uint64(pod)*2654435761+1)
	labels := map[string]string{
		labelPodUID: uid, labelPodName: name, labelPodNamespace: namespace,
		"app.kubernetes.io/name": "workload", "app.kubernetes.io/part-of": "platform", "pod-template-hash": "7d9f8b6c5",
	}
	sandbox := &runtimeapi.PodSandbox{
		Id: sandboxID, CreatedAt: 1700000000e9, Labels: labels, RuntimeHandler: "runc",
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: uid, Namespace: namespace},
		Annotations: map[string]string{
			"kubernetes.io/config.seen": "2026-11-20T02:49:42.123456789Z", "kubernetes.io/config.source": "api",
			"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "checksum/config": strings.Repeat("0123456789abcdef", 4),
		},
	}
	var list []*runtimeapi.Container
	for i := range containers {
		list = append(list, &runtimeapi.Container{
			Id: fmt.Sprintf("%064x", uint64(pod*64+i)*11400714819323198485+7), PodSandboxId: sandboxID, State: state, CreatedAt: 1700000001e9,
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("container-%d", i)},
			Image:    &runtimeapi.ImageSpec{Image: "sha256:" + strings.Repeat("ab", 32), UserSpecifiedImage: "registry.example.com/team/workload:v1.2.3"},
			ImageRef: "registry.example.com/team/workload@sha256:" + strings.Repeat("cd", 32), ImageId: "sha256:" + strings.Repeat("ab", 32),
			Labels: map[string]string{
				labelPodUID: uid, labelPodName: name, labelPodNamespace: namespace, "io.kubernetes.container.name": fmt.Sprintf("container-%d", i),
			},
			Annotations: map[string]string{
				"io.kubernetes.container.hash": "8f3c1d2e", "io.kubernetes.container.restartCount": "0",
				"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
				"io.kubernetes.container.terminationMessagePolicy": "File",
				"io.kubernetes.pod.terminationGracePeriod":         "30",
				"io.kubernetes.container.ports":                    `[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}]`,
				"io.kubernetes.container.preStopHandler":           `{"exec":{"command":["/bin/sh","-c","sleep 5 && kill -TERM 1 && while kill -0 1; do sleep 1; done"]}}`,
			},
		})
	}
	return sandbox, list
}

// encodeNode encodes the lists of a node of pods × 2 containers in random order, with map entries
// in random order, as containerd does.
func encodeNode(pods int) (list [2][]byte) {
	var sandboxes runtimeapi.ListPodSandboxResponse
	var containers runtimeapi.ListContainersResponse
	for i := range pods {
		s, cs := nodePod(i, 2, running)
		sandboxes.Items, containers.Containers = append(sandboxes.Items, s), append(containers.Containers, cs...)
	}
	shuffle(rand.Shuffle, sandboxes.Items)
	shuffle(rand.Shuffle, containers.Containers)
	return [2][]byte{encode(&sandboxes), encode(&containers)}
}

func shuffle[T any](by func(n int, swap func(i, j int)), s []T) {
	by(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

// nodeEvent returns an event of a container's life in a pod of two containers.
func nodeEvent(pod int, kind runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	s, cs := nodePod(pod, 2, running)
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: cs[0].Id, ContainerEventType: kind, CreatedAt: 1700000002e9,
		PodSandboxStatus: statusOfSandbox(s),
	}
	e.PodSandboxStatus.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}}}
	for _, c := range cs {
		e.ContainersStatuses = append(e.ContainersStatuses, statusOf(c))
	}
	return e
}

// statusOfSandbox returns the status of a listed sandbox.
func statusOfSandbox(s *runtimeapi.PodSandbox) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
	}
}

// statusOf returns the status of a listed container.
func statusOf(c *runtimeapi.Container) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.CreatedAt + 1, Image: c.Image, ImageRef: c.ImageRef,
		ImageId: c.ImageId, Labels: c.Labels, Annotations: c.Annotations, LogPath: "/var/log/pods/x/y/0.log",
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/etc/hosts", HostPath: "/var/lib/kubelet/pods/" + c.Labels[labelPodUID] + "/etc-hosts"},
			{ContainerPath: "/dev/termination-log", HostPath: "/var/lib/kubelet/pods/" + c.Labels[labelPodUID] + "/containers/x/0"},
			{ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: "/var/lib/kubelet/pods/" + c.Labels[labelPodUID] + "/volumes/t", Readonly: true},
		},
		Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuShares: 102, MemoryLimitInBytes: 1 << 28, OomScoreAdj: 999}},
	}
}
