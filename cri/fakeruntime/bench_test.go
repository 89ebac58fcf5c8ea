// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"runtime"
	"testing"
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
