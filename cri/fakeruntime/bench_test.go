// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkListPage measures a list's cost to the server, without the transport.
func BenchmarkListPage(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rt := must(New(Config{}))(b)
			must(rt.Populate(Population{Pods: n / 2, Containers: 2}))(b)
			b.ReportAllocs()
			for b.Loop() {
				page := rt.containerPage(rt.findContainers(nil), true, "ListContainers", 1)
				b.SetBytes(int64(page.Len()))
				page.Free()
			}
		})
	}
}

// BenchmarkListOfOnePod measures the list for a waiter, among 100,000 containers.
func BenchmarkListOfOnePod(b *testing.B) {
	rt := must(New(Config{}))(b)
	must(rt.Populate(Population{Pods: 50_000, Containers: 2}))(b)
	uid := rt.Truth().Pods[7].UID
	filter := &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelPodUID: uid}}
	b.ReportAllocs()
	for b.Loop() {
		rows := rt.findContainers(filter)
		if len(rows) != 2 {
			b.Fatal(len(rows))
		}
		page := rt.containerPage(rows, true, "ListContainers", 1)
		page.Free()
	}
}

// rawCodec hands messages out undecoded, so that a benchmark measures the server and the transport
// only.
type rawCodec struct{ encoding.CodecV2 }

type rawMessage struct{ n int }

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*rawMessage); ok {
		r.n = data.Len()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// BenchmarkListCall is a list over bufconn, undecoded.
func BenchmarkListCall(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b, Config{})
			defer w.end()
			must(w.rt.Populate(Population{Pods: n / 2, Containers: 2}))(b)
			var res rawMessage
			b.ReportAllocs()
			for b.Loop() {
				check(b, w.conn.Invoke(b.Context(), runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{}, &res,
					grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")})))
				b.SetBytes(int64(res.n))
			}
		})
	}
}

// BenchmarkPublish measures a change of a container with its event, with a subscriber that reads
// undecoded.
func BenchmarkPublish(b *testing.B) {
	w := newWorld(b, Config{HistoryLimit: 1000})
	defer w.end()
	sb := must(w.rt.AddPod(PodSpec{}))(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	stream := must(w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, runtimeapi.RuntimeService_GetContainerEvents_FullMethodName,
		grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")})))(b)
	check(b, stream.SendMsg(&runtimeapi.GetEventsRequest{}))
	check(b, stream.CloseSend())
	var ev rawMessage
	for range 2 {
		check(b, stream.RecvMsg(&ev))
	}
	b.ReportAllocs()
	for b.Loop() {
		c := must(w.rt.AddContainer(sb, ContainerSpec{}))(b)
		check(b, w.rt.Remove(c))
		for range 2 {
			check(b, stream.RecvMsg(&ev))
		}
	}
	b.ReportMetric(float64(b.N)*2/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkEmit measures an event without any transport.
func BenchmarkEmit(b *testing.B) {
	rt := must(New(Config{HistoryLimit: 1000, Profile: profiles[2]}))(b)
	sb := must(rt.AddPod(PodSpec{}))(b)
	c := must(rt.AddContainer(sb, ContainerSpec{}))(b)
	b.ReportAllocs()
	for b.Loop() {
		rt.lock()
		rt.emitContainer(rt.store.containers[c], eventStarted)
		rt.mu.Unlock()
	}
}

// BenchmarkPopulate measures the making and the memory of 100,000 containers.
func BenchmarkPopulate(b *testing.B) {
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		rt := must(New(Config{}))(b)
		must(rt.Populate(Population{Pods: 50_000, Containers: 2}))(b)
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(rt)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
}
