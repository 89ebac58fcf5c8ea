// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

func benchRecorder(b *testing.B) (*Broadcaster, *Recorder) {
	b.Helper()
	bc, err := New(Options{Sink: eventstest.NewServer().Sink(), Instance: "node-1"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = bc.Run(ctx)
	}()
	b.Cleanup(func() {
		cancel()
		<-done
	})
	return bc, bc.NewRecorder(scheme.Scheme, controller).(*Recorder)
}

// BenchmarkEventfHot measures an occurrence of an active series. All allocations are the caller's:
// the slice of the arguments.
func BenchmarkEventfHot(b *testing.B) {
	pod := testPod("a")
	gvk := testPod("a")
	gvk.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	ref := podRef("a")
	for _, tc := range []struct {
		name    string
		obj     runtime.Object
		related runtime.Object
		args    []any
	}{
		{"ref", ref, nil, nil},
		{"pod", pod, nil, nil},
		{"pod with kind", gvk, nil, nil},
		{"ref and related", ref, podRef("b"), nil},
		{"ref and two arguments", ref, nil, []any{"x", 1000}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			bc, r := benchRecorder(b)
			b.ReportAllocs()
			for b.Loop() {
				if tc.args == nil {
					r.Eventf(tc.obj, tc.related, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off restarting failed container")
				} else {
					r.Eventf(tc.obj, tc.related, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off %s %d", tc.args[0], tc.args[1])
				}
			}
			if s := bc.Stats(); s.Emitted != s.Acknowledged+s.Unsent || s.Series != 1 {
				b.Errorf("books: %+v", s)
			}
		})
	}
}

func BenchmarkEventfParallel(b *testing.B) {
	_, r := benchRecorder(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ref := podRef("a")
		for pb.Next() {
			r.Eventf(ref, nil, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off")
		}
	})
}

// BenchmarkEventfNew is the first occurrence of a series, with nobody writing.
func BenchmarkEventfNew(b *testing.B) {
	bc, err := New(Options{Sink: eventstest.NewServer().Sink(), MaxQueue: 1 << 30, MaxSeries: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	r := bc.NewRecorder(scheme.Scheme, controller)
	ref := podRef("a")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		ref.Name = fmt.Sprint("pod-", i)
		r.Eventf(ref, nil, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off %d", i)
	}
}

// TestHotPathAllocatesNothing checks the benchmark's promise.
func TestHotPathAllocatesNothing(t *testing.T) {
	bc, err := New(Options{Sink: eventstest.NewServer().Sink()})
	if err != nil {
		t.Fatal(err)
	}
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
