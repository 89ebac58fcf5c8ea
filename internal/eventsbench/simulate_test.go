// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

var (
	simNodes = flag.Int("sim.nodes", 20, "nodes of TestSimulatedCluster")
	simHours = flag.Int("sim.hours", 1, "virtual hours of TestSimulatedCluster")
)

// simulated is the recorder of a node inside of a bubble: its sink is the server itself, without HTTP.
type simulated struct {
	emit  func(obj runtime.Object, eventtype, reason, action, note string)
	calls func() map[string]int64 // of ours, by kind
	stop  func()
}

// coreSink is a server as client-go's legacy recorder wants it.
type coreSink struct{ *eventstest.LegacySink }

func (s coreSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.LegacySink.Create(context.Background(), e)
}

func (s coreSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.LegacySink.Create(context.Background(), e)
}

func (s coreSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.LegacySink.Patch(context.Background(), e, data)
}

func simulate(t *testing.T, recorder string, api *eventstest.Server, node string) simulated {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	switch recorder {
	case RecorderClientGo:
		b := clientevents.NewBroadcaster(api.Sink())
		if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
			t.Fatal(err)
		}
		r := b.NewRecorder(scheme.Scheme, controller)
		return simulated{
			emit: func(obj runtime.Object, eventtype, reason, action, note string) {
				r.Eventf(obj, nil, eventtype, reason, action, "%s", note)
			},
			stop: func() { cancel(); b.Shutdown() },
		}
	case RecorderClientGoLegacy:
		b := record.NewBroadcaster(record.WithContext(ctx))
		b.StartRecordingToSink(coreSink{api.LegacySink()})
		r := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: controller, Host: node})
		return simulated{
			emit: func(obj runtime.Object, eventtype, reason, _, note string) { r.Event(obj, eventtype, reason, note) },
			stop: func() { b.Shutdown(); cancel() },
		}
	}
	b, err := events.New(events.Options{Sink: api.Sink(), Instance: node})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	r := b.NewRecorder(scheme.Scheme, controller)
	return simulated{
		calls: func() map[string]int64 { return b.Stats().Calls },
		emit: func(obj runtime.Object, eventtype, reason, action, note string) {
			r.Eventf(obj, nil, eventtype, reason, action, "%s", note)
		},
		stop: func() {
			if err := b.ShutdownWithContext(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		},
	}
}

// TestSimulatedCluster: one pod crashes on every node, all at the same time, as after a bad rollout. Each goes through its back-off of 10 s … 5 min, and its
// kubelet says BackOff every 15 s in between. Time is virtual, calls are real. With -sim.nodes 5000 -v it is the table of docs/events.md.
func TestSimulatedCluster(t *testing.T) {
	for _, recorder := range Recorders {
		t.Run(recorder, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := eventstest.NewServer()
				api.SetTTL(24 * time.Hour) // so that what is stored can be added up in the end
				nodes := make([]simulated, *simNodes)
				refs := make([]*corev1.ObjectReference, *simNodes)
				for i := range nodes {
					nodes[i] = simulate(t, recorder, api, nodeName(i))
					refs[i] = podRef("sim", fmt.Sprint("pod-", i))
					refs[i].FieldPath = "spec.containers{app}"
				}
				emitted := int64(0)
				say := func(eventtype, reason, action, note string) {
					for i := range nodes {
						nodes[i].emit(refs[i], eventtype, reason, action, note)
						emitted++
					}
					time.Sleep(time.Millisecond) // two events of one nanosecond would have one name in client-go
					synctest.Wait()
				}
				backoff := 10 * time.Second
				var next time.Duration
				const sync = 15 * time.Second
				for at := time.Duration(0); at < time.Duration(*simHours)*time.Hour; at += sync {
					if at >= next {
						say("Normal", "Pulled", "Pulling", "image is already present")
						say("Normal", "Created", "Creating", "created container app")
						say("Normal", "Started", "Starting", "started container app")
						next = at + backoff
						backoff = min(2*backoff, 5*time.Minute)
					} else {
						say("Warning", "BackOff", "Restarting", "back-off restarting failed container app")
					}
					time.Sleep(sync)
				}
				loop, _ := api.Count()
				time.Sleep(13 * time.Minute) // finishes, of client-go's too
				synctest.Wait()
				for _, n := range nodes {
					n.stop()
				}
				synctest.Wait()
				time.Sleep(time.Minute) // client-go's goroutines end in their own time
				all, failed := api.Count()
				var stored int64
				for _, e := range api.Events() {
					stored += occurrencesOf(&e)
				}
				t.Logf("%s: %d nodes, %d h: emitted %d, stored %d, calls %d (%d failed), %.1f calls/s while it lasted",
					recorder, *simNodes, *simHours, emitted, stored, all, failed, float64(loop)/(float64(*simHours)*3600))
				if recorder != RecorderSeries {
					return
				}
				if stored != emitted || failed > int64(*simNodes) { // each looks for the roster of an earlier process
					t.Errorf("stored %d of %d, %d calls failed", stored, emitted, failed)
				}
				kinds := make(map[string]int64)
				for _, n := range nodes {
					for kind, calls := range n.calls() {
						kinds[kind] += calls
					}
				}
				t.Logf("calls by kind: %v", kinds)
				// What client-go's legacy recorder takes for the same: 72 calls a node in the first hour.
				if limit := int64(*simNodes * (24 + 48**simHours)); all > limit {
					t.Errorf("%d calls, want at most %d", all, limit)
				}
			})
		})
	}
}
