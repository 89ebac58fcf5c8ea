// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/rawcri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// measure runs f again and again, with pools and tables filled.
func measure(b *testing.B, f func()) {
	b.ReportAllocs()
	f()
	f()
	runtime.GC()
	for b.Loop() {
		f()
	}
}

// BenchmarkClaim parses a captured event of a pod with two containers, without the transport: by
// the generated decoder, and by Events.
func BenchmarkClaim(b *testing.B) {
	raw := rawcri.Encode(nodeEvent(1, 1))
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(raw, new(runtimeapi.ContainerEventResponse)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		c, names := new(Client), new(interner)
		data := mem.BufferSlice{mem.SliceBuffer(raw)}
		for b.Loop() {
			p := newEventBuffer()
			p.fill(data)
			e, ok := readEvent(p.message())
			claim, made := c.claim(&e, names, p)
			if !ok || !made {
				b.Fatal("malformed")
			}
			claim.Release()
		}
	})
}

// BenchmarkDecodeStatus reads a container status of the usual size: with the generated decoder, and
// as PodStatus does.
func BenchmarkDecodeStatus(b *testing.B) {
	raw := rawcri.Encode(nodeEvent(1, 0).ContainersStatuses[0])
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m runtimeapi.ContainerStatus
			if err := proto.Unmarshal(raw, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := decodeContainer(raw); !ok {
				b.Fatal("malformed")
			}
		}
	})
}

// BenchmarkIndex takes captured lists of 10,000 and 100,000 containers, in buffers as the transport
// hands them out, without the transport: ours when nothing changed but the order of everything, and
// the generated decoder.
func BenchmarkIndex(b *testing.B) {
	for _, containers := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			one, two := encodeNode(containers/2), encodeNode(containers/2)
			b.Run("ours", func(b *testing.B) {
				x, byID := newIndex(), new(unlabelled)
				var buffers [2][2]mem.BufferSlice
				for i, l := range [][2][]byte{one, two} {
					buffers[i] = [2]mem.BufferSlice{cut(l[0], 16384), cut(l[1], 16384)}
				}
				n := 0
				measure(b, func() {
					l := buffers[n%2]
					n++
					if _, ok := x.list(l[0], l[1], x.revision, byID); !ok {
						b.Fatal("malformed")
					}
				})
			})
			b.Run("generated", func(b *testing.B) {
				measure(b, func() {
					var s runtimeapi.ListPodSandboxResponse
					var c runtimeapi.ListContainersResponse
					if err := errors.Join(proto.Unmarshal(one[0], &s), proto.Unmarshal(one[1], &c)); err != nil {
						b.Fatal(err)
					}
				})
			})
		})
	}
}

// BenchmarkMemory reports the memory of a listing's index, and of the listed pods, for each
// container of a node of 100,000, two a pod.
func BenchmarkMemory(b *testing.B) {
	const containers = 100_000
	lists := encodeNode(containers / 2)
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		x := newIndex()
		l, _ := x.list(cut(lists[0], 16384), cut(lists[1], 16384), 0, new(unlabelled))
		all := heap()
		runtime.KeepAlive(l)
		l = pleg.Listing{}
		index := heap()
		runtime.KeepAlive(x)
		b.ReportMetric((index-before)/containers, "index-B/container")
		b.ReportMetric((all-index)/containers, "listing-B/container")
	}
	b.ReportMetric(0, "ns/op")
}
