// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// counted is an immediate sink of either API: the benchmark measures the recorder only.
type counted struct{ creates, calls atomic.Int64 }

func (k *counted) create() { k.creates.Add(1); k.calls.Add(1) }

type countedSeries struct{ *counted }

func (k countedSeries) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	k.create()
	return e, nil
}

func (k countedSeries) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	k.calls.Add(1)
	return e, nil
}

func (k countedSeries) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	k.calls.Add(1)
	return e, nil
}

type countedCore struct{ *counted }

func (k countedCore) Create(e *corev1.Event) (*corev1.Event, error) { k.create(); return e, nil }

func (k countedCore) Update(e *corev1.Event) (*corev1.Event, error) { k.calls.Add(1); return e, nil }

func (k countedCore) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) {
	k.calls.Add(1)
	return e, nil
}

// contestants are this recorder by either interface, and client-go's two.
var contestants = []struct {
	name  string
	start func(b *testing.B, k *counted) (emit func(ref *corev1.ObjectReference), stop func())
}{
	{"ours", func(b *testing.B, k *counted) (func(*corev1.ObjectReference), func()) {
		bc, err := New(Options{Sink: countedSeries{k}, Instance: "node-1", NoRoster: true})
		if err != nil {
			b.Fatal(err)
		}
		bc.StartRecordingToSink(b.Context().Done())
		r := bc.NewSeriesRecorder(nil, controller)
		return func(ref *corev1.ObjectReference) { r.Eventf(ref, nil, "Warning", "BackOff", "Restart", "back-off") }, bc.Shutdown
	}},
	{"ours by record", func(b *testing.B, k *counted) (func(*corev1.ObjectReference), func()) {
		bc, err := New(Options{Sink: countedSeries{k}, Instance: "node-1", NoRoster: true})
		if err != nil {
			b.Fatal(err)
		}
		bc.StartRecordingToSink(b.Context().Done())
		r := bc.NewLegacyRecorder(nil, corev1.EventSource{Component: "kubelet", Host: "node-1"})
		return func(ref *corev1.ObjectReference) { r.Eventf(ref, "Warning", "BackOff", "back-off") }, bc.Shutdown
	}},
	{"client-go events", func(b *testing.B, k *counted) (func(*corev1.ObjectReference), func()) {
		bc := clientevents.NewBroadcaster(countedSeries{k})
		if err := bc.StartRecordingToSinkWithContext(b.Context()); err != nil {
			b.Fatal(err)
		}
		r := bc.NewRecorder(scheme.Scheme, controller)
		return func(ref *corev1.ObjectReference) { r.Eventf(ref, nil, "Warning", "BackOff", "Restart", "back-off") }, bc.Shutdown
	}},
	{"client-go record", func(b *testing.B, k *counted) (func(*corev1.ObjectReference), func()) {
		bc := record.NewBroadcaster(record.WithContext(b.Context()))
		bc.StartRecordingToSink(countedCore{k})
		r := bc.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: "node-1"})
		return func(ref *corev1.ObjectReference) { r.Eventf(ref, "Warning", "BackOff", "back-off") }, bc.Shutdown
	}},
}

// BenchmarkRecorders compares the recorders on one object, on a thousand, and on distinct objects.
// The CPU is the process's, including goroutines behind a recorder; lost counts events missing at
// the sink.
func BenchmarkRecorders(b *testing.B) {
	for _, load := range []struct {
		name    string
		objects int // 0: all different
	}{{"hot", 1}, {"1000 series", 1000}, {"distinct", 0}} {
		for _, c := range contestants {
			b.Run(load.name+"/"+c.name, func(b *testing.B) {
				k := &counted{}
				emit, stop := c.start(b, k)
				refs := make([]*corev1.ObjectReference, max(load.objects, min(b.N, 1<<16)))
				for i := range refs {
					refs[i] = podRef(fmt.Sprint("pod-", i))
				}
				b.ReportAllocs()
				b.ResetTimer()
				before := cpu()
				for i := range b.N {
					objects := load.objects
					if objects == 0 {
						objects = len(refs)
					}
					if emit(refs[i%objects]); i%500 == 499 { // no recorder's queue overflows
						settled(k, int64(i+1), load.objects == 0)
					}
				}
				settled(k, int64(b.N), load.objects == 0)
				b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
				b.StopTimer()
				if load.objects == 0 {
					b.ReportMetric(float64(max(int64(min(b.N, len(refs)))-k.creates.Load(), 0)), "lost")
				}
				stop()
			})
		}
	}
}

// settled waits until the sink is idle. For distinct events, settled waits for all, or for a longer
// idle time.
func settled(k *counted, emitted int64, distinct bool) {
	for rest := 0; rest < 1 || distinct && k.creates.Load() < emitted && rest < 100; rest++ {
		before := k.calls.Load()
		time.Sleep(100 * time.Microsecond)
		if k.calls.Load() != before {
			rest = -1
		}
	}
}

// cpu is the CPU time of the process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
