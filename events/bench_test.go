// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// emitter emits an event about an object, always the same one.
type emitter func(about *corev1.ObjectReference)

// The contestants are this recorder by either interface, and client-go's two. Each starts on a sink
// of its API and is stopped in order.
var contestants = []struct {
	name  string
	start func(context.Context, testing.TB, clientevents.EventSink, record.EventSink) (emit emitter, stop func())
}{{"ours", ours}, {"ours by record", oursByRecord}, {"client-go events", clientEvents}, {"client-go record", clientRecord}}

var ofKubelet = corev1.EventSource{Component: "kubelet", Host: "node-1"}

func recording(ctx context.Context, tb testing.TB, sink clientevents.EventSink) *Broadcaster {
	tb.Helper()
	b := must(New(Options{Sink: sink, Instance: "node-1", NoRoster: true}))(tb)
	b.StartRecordingToSink(ctx.Done())
	return b
}

func newer(r clientevents.EventRecorder) emitter {
	return func(about *corev1.ObjectReference) { r.Eventf(about, nil, "Warning", "BackOff", "Restart", "back-off") }
}

func older(r record.EventRecorder) emitter {
	return func(about *corev1.ObjectReference) { r.Eventf(about, "Warning", "BackOff", "back-off") }
}

func ours(ctx context.Context, tb testing.TB, sink clientevents.EventSink, _ record.EventSink) (emitter, func()) {
	b := recording(ctx, tb, sink)
	return newer(b.NewRecorder(nil, controller)), b.Shutdown
}

func oursByRecord(ctx context.Context, tb testing.TB, sink clientevents.EventSink, _ record.EventSink) (emitter, func()) {
	b := recording(ctx, tb, sink)
	return older(b.NewLegacyRecorder(nil, ofKubelet)), b.Shutdown
}

func clientEvents(ctx context.Context, tb testing.TB, sink clientevents.EventSink, _ record.EventSink) (emitter, func()) {
	tb.Helper()
	b := clientevents.NewBroadcaster(sink)
	noError(tb, b.StartRecordingToSinkWithContext(ctx))
	return newer(b.NewRecorder(scheme.Scheme, controller)), b.Shutdown
}

func clientRecord(ctx context.Context, _ testing.TB, _ clientevents.EventSink, sink record.EventSink) (emitter, func()) {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(sink)
	return older(b.NewRecorder(scheme.Scheme, ofKubelet)), b.Shutdown
}

// coreSink is a sink for client-go's older recorder, as in a kubelet.
type coreSink struct{ withContext }

type withContext interface {
	Create(context.Context, *corev1.Event) (*corev1.Event, error)
	Update(context.Context, *corev1.Event) (*corev1.Event, error)
	Patch(context.Context, *corev1.Event, []byte) (*corev1.Event, error)
}

func (s coreSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.withContext.Create(context.Background(), e)
}

func (s coreSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.withContext.Update(context.Background(), e)
}

func (s coreSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.withContext.Patch(context.Background(), e, data)
}

// counted is an immediate sink of either API: the benchmark measures the recorder only.
type counted[E any] struct{ *counts }

type counts struct{ creates, calls atomic.Int64 }

func (k counted[E]) Create(ctx context.Context, e *E) (*E, error) {
	k.creates.Add(1)
	return k.Update(ctx, e)
}

func (k counted[E]) Update(_ context.Context, e *E) (*E, error) { k.calls.Add(1); return e, nil }

func (k counted[E]) Patch(ctx context.Context, e *E, _ []byte) (*E, error) { return k.Update(ctx, e) }

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
				k := &counts{}
				emit, stop := c.start(b.Context(), b, counted[eventsv1.Event]{k}, coreSink{counted[corev1.Event]{k}})
				refs := make([]*corev1.ObjectReference, cmp.Or(load.objects, b.N)) // none comes back
				for i := range refs {
					refs[i] = podRef(fmt.Sprint("pod-", i))
				}
				b.ReportAllocs()
				b.ResetTimer()
				before := cpu()
				for i := range b.N {
					emit(refs[i%len(refs)])
					if i%500 == 499 { // no recorder's queue overflows
						settled(k, int64(i+1), load.objects == 0)
					}
				}
				settled(k, int64(b.N), load.objects == 0)
				b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
				b.StopTimer()
				if load.objects == 0 {
					b.ReportMetric(float64(max(int64(b.N)-k.creates.Load(), 0)), "lost")
				}
				stop()
			})
		}
	}
}

// settled waits until the sink is idle. For distinct events, settled waits for all, or for a longer
// idle time.
func settled(k *counts, emitted int64, distinct bool) {
	for rest := 0; rest < 1 || distinct && k.creates.Load() < emitted && rest < 100; rest++ {
		before := k.calls.Load()
		time.Sleep(time.Millisecond) // looks each 100 µs are a third of the CPU on a busy machine
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

// TestHotPathAllocatesNothing checks the benchmark's promise.
func TestHotPathAllocatesNothing(t *testing.T) {
	bc := must(New(Options{Sink: eventstest.NewServer().Sink()}))(t)
	r := bc.NewRecorder(scheme.Scheme, controller)
	var related runtime.Object = podRef("b")
	for name, obj := range map[string]runtime.Object{"reference": podRef("a"), "pod": testPod("a")} {
		emit := func() { r.Eventf(obj, related, corev1.EventTypeNormal, "R", "A", "note without arguments") }
		emit()
		if n := testing.AllocsPerRun(1000, emit); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		args := func() { r.Eventf(obj, related, corev1.EventTypeNormal, "R", "A", "%s %s", "a", "b") }
		if n := testing.AllocsPerRun(1000, args); n > 2 {
			t.Errorf("%s with arguments: %v allocations", name, n)
		}
	}
}

// TestMemoryOfASeries: a live series takes little memory.
func TestMemoryOfASeries(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		const n = 4000
		refs := make([]*corev1.ObjectReference, n)
		for i := range refs {
			refs[i] = podRef(fmt.Sprint("p", i))
		}
		heap := func() int64 {
			goruntime.GC()
			goruntime.GC()
			var m goruntime.MemStats
			goruntime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		r.Broadcaster.opts.Sink = mute{}
		before := heap()
		for range 3 {
			for _, ref := range refs {
				r.rec.Eventf(ref, nil, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off")
			}
			pass(2 * time.Minute)
		}
		each := (heap() - before) / n
		if *showTables {
			t.Logf("%d bytes a live series", each)
		}
		if each > 1126 {
			t.Errorf("%d bytes a live series", each)
		}
		goruntime.KeepAlive(refs)
	})
}
