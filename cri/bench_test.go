// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// discard receives without looking: the transport's own cost.
type discard struct{ codec }

func (discard) Unmarshal(mem.BufferSlice, any) error { return nil }

// measure runs f and reports the CPU time of this process for each run beside the wall time.
func measure(b *testing.B, f func()) {
	b.ReportAllocs()
	f() // connect, learn, fill the pools
	runtime.GC()
	start := cpu()
	n := 0
	for b.Loop() {
		f()
		n++
	}
	b.ReportMetric(float64(cpu()-start)/float64(n), "cpu-ns/op")
}

// BenchmarkRelist lists a node of 2 containers a pod: the transport alone, with the generated
// decoder, and with List when nothing changed (but the order of everything), and when 1 % of the
// containers did.
func BenchmarkRelist(b *testing.B) {
	for _, containers := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			socket := startBenchServer(b, containers/2)
			check := func(err error) {
				if err != nil {
					b.Fatal(err)
				}
			}
			b.Run("floor", func(b *testing.B) {
				conn := dialBench(b, socket)
				measure(b, func() {
					for _, m := range []method{listPodSandbox, listContainers} {
						check(conn.Invoke(b.Context(), methodPaths[m], request(nil), nil, grpc.ForceCodecV2(discard{})))
					}
				})
			})
			b.Run("floor-streaming", func(b *testing.B) {
				conn := dialBench(b, socket)
				measure(b, func() {
					for _, m := range []method{streamPodSandboxes, streamContainers} {
						check(drain(b.Context(), conn, m))
					}
				})
			})
			b.Run("generated", func(b *testing.B) {
				client := runtimeapi.NewRuntimeServiceClient(dialBench(b, socket))
				measure(b, func() {
					_, err := client.ListPodSandbox(b.Context(), &runtimeapi.ListPodSandboxRequest{})
					check(err)
					_, err = client.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{})
					check(err)
				})
			})
			for _, name := range []string{"unchanged", "unchanged-streaming", "changed-1-percent", "changed-1-percent-streaming"} {
				b.Run(name, func(b *testing.B) {
					c, err := New(Config{Endpoint: socket})
					check(err)
					defer c.Close()
					ctx := b.Context()
					if name[0] == 'c' {
						ctx = grpcmetadata.AppendToOutgoingContext(ctx, changing, "1")
					}
					if name[len(name)-1] != 'g' {
						_, err := c.Version(ctx) // learn the runtime's capabilities
						_ = err
						c.capabilities.Load().has[streamContainers].learn(false)
						c.capabilities.Load().has[streamPodSandboxes].learn(false)
					}
					var revision pleg.Revision
					pods, lists := 0, 0
					measure(b, func() {
						l, err := c.List(ctx, revision)
						check(err)
						if l.Delta {
							pods, lists = pods+len(l.Pods), lists+1
						}
						revision = l.Revision
					})
					b.ReportMetric(float64(pods)/float64(lists), "pods/op")
				})
			}
		})
	}
}

// drain reads a streaming list without looking.
func drain(ctx context.Context, conn *grpc.ClientConn, m method) error {
	s, err := conn.NewStream(ctx, &serverStreams, methodPaths[m], grpc.ForceCodecV2(discard{}))
	if err != nil {
		return err
	}
	if err := errors.Join(s.SendMsg(request(nil)), s.CloseSend()); err != nil {
		return err
	}
	for err == nil {
		err = s.RecvMsg(nil)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// BenchmarkEvents receives events of pods with two containers: the transport alone, the generated
// decoder, and Events with the status left alone and with the status read. One operation is 1000
// events.
func BenchmarkEvents(b *testing.B) {
	const batch = 1000
	socket := startBenchServer(b, 1000)
	subscribe := func(b *testing.B, options ...grpc.CallOption) grpc.ClientStream {
		conn := dialBench(b, socket)
		s, err := conn.NewStream(b.Context(), &serverStreams, methodPaths[getContainerEvents], options...)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("floor", func(b *testing.B) {
		s := subscribe(b, grpc.ForceCodecV2(discard{}))
		check(s.SendMsg(request(nil)))
		check(s.CloseSend())
		measure(b, func() {
			for range batch {
				check(s.RecvMsg(nil))
			}
		})
	})
	b.Run("generated", func(b *testing.B) {
		s := subscribe(b)
		check(s.SendMsg(&runtimeapi.GetEventsRequest{}))
		check(s.CloseSend())
		measure(b, func() {
			for range batch {
				check(s.RecvMsg(new(runtimeapi.ContainerEventResponse)))
			}
		})
	})
	for name, read := range map[string]bool{"claim": false, "claim-and-status": true} {
		b.Run(name, func(b *testing.B) {
			c, err := New(Config{Endpoint: socket})
			check(err)
			defer c.Close()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			claims := make(chan struct{})
			turn := make(chan struct{})
			go func() {
				defer close(claims)
				n := 0
				for claim, err := range c.Events(ctx) {
					if err != nil {
						return
					}
					if read {
						s, err := claim.Status()
						if err != nil || len(s.Containers()) != 2 || len(s.IPs()) != 2 {
							panic(fmt.Sprint("status: ", s, err))
						}
					}
					if n++; n%batch == 0 {
						select {
						case claims <- struct{}{}:
							<-turn
						case <-ctx.Done():
							return
						}
					}
				}
			}()
			measure(b, func() { <-claims; turn <- struct{}{} })
			cancel()
			close(turn)
			for range claims {
			}
		})
	}
}

// BenchmarkClaim parses a captured event of a pod with two containers, without the transport: by
// the generated decoder, and by Events.
func BenchmarkClaim(b *testing.B) {
	raw, err := proto.Marshal(nodeEvent(1, 1))
	if err != nil {
		b.Fatal(err)
	}
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

// BenchmarkInspect reads the statuses of a pod with two containers: from a runtime with three
// calls, from a runtime with a single call, and by the generated client from the former.
func BenchmarkInspect(b *testing.B) {
	socket := startBenchServer(b, 1000)
	e := nodeEvent(1, 1)
	pod := pleg.Pod{UID: "00000001-1c2d-4e5f-8a9b-000000000001", Items: []pleg.Item{{ID: e.PodSandboxStatus.Id, Kind: pleg.Sandbox}}}
	for _, c := range e.ContainersStatuses {
		pod.Items = append(pod.Items, pleg.Item{ID: c.Id})
	}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("generated", func(b *testing.B) {
		client := runtimeapi.NewRuntimeServiceClient(dialBench(b, socket))
		measure(b, func() {
			_, err := client.PodSandboxStatus(b.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.Items[0].ID})
			check(err)
			for _, item := range pod.Items[1:] {
				_, err := client.ContainerStatus(b.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: item.ID})
				check(err)
			}
		})
	})
	for _, name := range []string{"three-calls", "one-call"} {
		b.Run(name, func(b *testing.B) {
			c, err := New(Config{Endpoint: socket})
			check(err)
			defer c.Close()
			ctx := b.Context()
			if name == "one-call" {
				ctx = grpcmetadata.AppendToOutgoingContext(ctx, filled, "1")
			}
			measure(b, func() {
				in, err := c.Inspect(ctx, pod)
				check(err)
				if len(in.Pod.Items) != 3 {
					b.Fatalf("inspection: %+v", in)
				}
			})
		})
	}
}

// BenchmarkDecodeStatus reads a container status of the usual size: with the generated decoder, and
// as PodStatus does.
func BenchmarkDecodeStatus(b *testing.B) {
	raw, err := proto.Marshal(nodeEvent(1, 0).ContainersStatuses[0])
	if err != nil {
		b.Fatal(err)
	}
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
			var lists [2][2][]byte
			for i := range lists {
				e := encodeNode(containers/2, 0, running)
				lists[i] = [2][]byte{e.sandboxes[0], e.containers[0]}
			}
			b.Run("ours", func(b *testing.B) { benchmarkIndex(b, lists) })
			b.Run("generated", func(b *testing.B) {
				measure(b, func() {
					var s runtimeapi.ListPodSandboxResponse
					var c runtimeapi.ListContainersResponse
					if err := errors.Join(proto.Unmarshal(lists[0][0], &s), proto.Unmarshal(lists[0][1], &c)); err != nil {
						b.Fatal(err)
					}
				})
			})
		})
	}
}

// benchmarkIndex takes two lists by turns.
func benchmarkIndex(b *testing.B, lists [2][2][]byte) {
	x, byID := newIndex(), new(unlabelled)
	var buffers [2][2]mem.BufferSlice
	for i, l := range lists {
		buffers[i] = [2]mem.BufferSlice{cut(l[0], 16384), cut(l[1], 16384)}
	}
	var walker segments
	n := 0
	list := func() {
		l := buffers[n%2]
		n++
		x.begin()
		if !x.unchangedSandboxes(&walker, l[0]) && !walker.walk(l[0], itemsField, x.sandbox) {
			b.Fatal("malformed")
		}
		if !x.unchangedContainers(&walker, l[1]) && !walker.walk(l[1], itemsField, x.container) {
			b.Fatal("malformed")
		}
		x.commit(x.revision, byID)
	}
	list()
	b.SetBytes(int64(len(lists[0][0]) + len(lists[0][1])))
	measure(b, list)
}

// BenchmarkMemory reports the memory of a listing's index, and of the listed pods, for each
// container of a node of 100,000, two a pod.
func BenchmarkMemory(b *testing.B) {
	const containers = 100_000
	e := encodeNode(containers/2, 5000, running)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var index, listing float64
	for b.Loop() {
		before := heap()
		x := newIndex()
		x.begin()
		var walker segments
		for _, batch := range e.sandboxes {
			walker.walk(cut(batch, 16384), itemsField, x.sandbox)
		}
		for _, batch := range e.containers {
			walker.walk(cut(batch, 16384), itemsField, x.container)
		}
		l := x.commit(0, new(unlabelled))
		all := heap()
		runtime.KeepAlive(l)
		l = pleg.Listing{}
		mid := heap()
		index, listing = float64(mid-before)/containers, float64(all-mid)/containers
		runtime.KeepAlive(x)
	}
	b.ReportMetric(index, "index-B/container")
	b.ReportMetric(listing, "listing-B/container")
	b.ReportMetric(0, "ns/op")
}
