// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// beside measures f beside the generated decoder, which decodes the messages.
func beside(b *testing.B, messages map[proto.Message][]byte, f func(b *testing.B)) {
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for m, raw := range messages {
				check(b, proto.Unmarshal(raw, m))
			}
		}
	})
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		f(b)
	})
}

// ofClaims measures f of the claim of an encoded event, received again and again without the
// transport, beside the generated decoder.
func ofClaims(b *testing.B, raw []byte, f func(b *testing.B, claim pleg.Claim[PodStatus])) {
	beside(b, map[proto.Message][]byte{new(runtimeapi.ContainerEventResponse): raw}, func(b *testing.B) {
		c, names := new(Client), new(interner)
		data := mem.BufferSlice{mem.SliceBuffer(raw)}
		for b.Loop() {
			p := newEventBuffer()
			p.fill(data)
			claim, made := claimOf(c, names, p)
			if !made {
				b.Fatal("malformed")
			}
			f(b, claim)
			claim.Release()
		}
	})
}

// BenchmarkClaim parses a captured event of a pod with two containers.
func BenchmarkClaim(b *testing.B) {
	ofClaims(b, encode(nodeEvent(1, 1)), func(*testing.B, pleg.Claim[PodStatus]) {})
}

// BenchmarkStatusOfEvent takes the event of an exit in a pod with two containers, and builds the
// pod's status of it on the one that a read has brought.
func BenchmarkStatusOfEvent(b *testing.B) {
	exit := nodeEvent(1, 1)
	prev := must(statusOfEvent(encode(nodeEvent(1, 1))))(b)
	for _, s := range exit.ContainersStatuses {
		if s.Id == exit.ContainerId {
			s.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
	}
	exit.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	ofClaims(b, encode(exit), func(b *testing.B, claim pleg.Claim[PodStatus]) {
		next := must(claim.Status(prev))(b)
		if next == prev {
			b.Fatal("the status is the one before")
		}
	})
}

// BenchmarkDecodeStatus reads a container status of the usual size as PodStatus does.
func BenchmarkDecodeStatus(b *testing.B) {
	raw := encode(nodeEvent(1, 0).ContainersStatuses[0])
	beside(b, map[proto.Message][]byte{new(runtimeapi.ContainerStatus): raw}, func(b *testing.B) {
		for b.Loop() {
			if _, ok := decodeContainer(raw); !ok {
				b.Fatal("malformed")
			}
		}
	})
}

// BenchmarkIndex takes captured lists of 10,000 and 100,000 containers, in buffers as the transport
// hands them out, when nothing changed but the order of everything.
func BenchmarkIndex(b *testing.B) {
	for _, containers := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			var lists [2][2][]byte
			var buffers [2][2]mem.BufferSlice
			for i := range lists {
				lists[i] = encodeNode(containers / 2)
				buffers[i] = [2]mem.BufferSlice{cut(lists[i][0], 16384), cut(lists[i][1], 16384)}
			}
			beside(b, map[proto.Message][]byte{
				new(runtimeapi.ListPodSandboxResponse): lists[0][0], new(runtimeapi.ListContainersResponse): lists[0][1],
			}, func(b *testing.B) {
				x, byID := newIndex(), new(unlabelled)
				x.list(buffers[1][0], buffers[1][1], 0, byID)
				n := 0
				for b.Loop() {
					l := buffers[n%2]
					n++
					if _, ok := x.list(l[0], l[1], x.revision, byID); !ok {
						b.Fatal("malformed")
					}
				}
			})
		})
	}
}

// BenchmarkCall makes the cheapest call, over a unix socket.
func BenchmarkCall(b *testing.B) {
	path := filepath.Join(b.TempDir(), "socket")
	s := new(stub)
	s.start(b, must(net.Listen("unix", path))(b))
	c := must(Dial(b.Context(), Config{Endpoint: path}))(b)
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		must(c.Version(b.Context()))(b)
	}
}

// BenchmarkUnlabelledPod commits a list of a pod whose sandboxes and containers lack the label of
// its UID. The time of each must not grow with their number.
func BenchmarkUnlabelledPod(b *testing.B) {
	for _, items := range []int{5_000, 20_000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				x := newIndex()
				x.begin()
				for i := range items {
					x.sandbox(encode(bare(fmt.Sprintf("%064x", i), "u")))
					x.container(encode(container(fmt.Sprintf("%063xc", i), fmt.Sprintf("%064x", i), "", running)))
				}
				b.StartTimer()
				byID := new(unlabelled)
				x.commit(0, byID)
				if ids := byID.sandboxes("u"); len(ids) != items {
					b.Fatalf("the pod is found by %d sandboxes", len(ids))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(items), "ns/item")
		})
	}
}

// BenchmarkInspect reads the statuses of a pod of many containers. The time of each must not grow
// with their number.
func BenchmarkInspect(b *testing.B) {
	for _, items := range []int{1_000, 8_000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			has := make(map[string]runtimeapi.ContainerState)
			pod := pleg.Pod{UID: "u"}
			for i := range items {
				id := fmt.Sprintf("%064x", i)
				has[id] = running
				pod.Items = append(pod.Items, pleg.Item{ID: id, Phase: pleg.PhaseRunning})
			}
			c := serve(b, statuses(0, nil, has), Config{})
			for b.Loop() {
				if read := must(c.Inspect(b.Context(), pod))(b); len(read.Unread) > 0 {
					b.Fatalf("%d are not read", len(read.Unread))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(items), "ns/item")
		})
	}
}
