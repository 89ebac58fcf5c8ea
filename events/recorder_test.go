// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// TestWholeEvent checks every field of a first event, with a container of the pod as the object and
// another as the related one.
func TestWholeEvent(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		pod := testPod("a")
		regarding := must(reference.GetPartialReference(scheme.Scheme, pod, "spec.containers{one}"))(t)
		related := must(reference.GetPartialReference(scheme.Scheme, pod, "spec.containers{two}"))(t)
		at := time.Now()
		r.rec.AnnotatedEventf(regarding, related, map[string]string{"example.com/trace": "42"}, corev1.EventTypeNormal, "Started", "Start", "number %d of %s", 1, "two")
		synctest.Wait()
		got := r.one()
		name := got.Name
		got.ObjectMeta.Name, got.Generation, got.ResourceVersion = "", 0, ""
		got.EventTime = metav1.MicroTime{}
		want := eventsv1.Event{
			ObjectMeta:          metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{"example.com/trace": "42"}},
			ReportingController: controller,
			ReportingInstance:   "node-1",
			Action:              "Start",
			Reason:              "Started",
			Regarding:           *regarding,
			Related:             related,
			Note:                "number 1 of two",
			Type:                corev1.EventTypeNormal,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if !strings.HasPrefix(name, "a.") || len(name) != 2+16+8 {
			t.Errorf("the name is %s", name)
		}
		if e := r.one(); e.EventTime.UnixMicro() != at.UnixMicro() {
			t.Errorf("eventTime is %v", e.EventTime)
		}
		r.rec.AnnotatedEventf(regarding, related, nil, corev1.EventTypeNormal, "Started", "Start", "number %d", 2)
		synctest.Wait()
		got = r.one()
		if got.Note != "number 1 of two" || told(&got) != "Ongoing ×2" || got.Annotations["example.com/trace"] != "42" {
			t.Errorf("after the second: %+v", got)
		}
	})
}

// TestDefaultInstance also checks that a node with a longer name than an instance may have still
// has Events.
func TestDefaultInstance(t *testing.T) {
	bubble(t, func(o *Options) { o.Instance = "" }, func(t *testing.T, r *rig) {
		host := strings.Repeat("node.", 40)
		r.pod("a", 1)
		r.NewLegacyRecorder(nil, corev1.EventSource{Component: "kubelet", Host: host}).Event(podRef("b"), corev1.EventTypeNormal, "Started", "x")
		synctest.Wait()
		own, long := r.wantAbout("a", "single")[0].ReportingInstance, r.wantAbout("b", "single")[0].ReportingInstance
		if !strings.HasPrefix(own, controller+"-") || len(own) == len(controller)+1 || long != host[:maxWord] {
			t.Errorf("the instances are %q and %q", own, long)
		}
	})
}

func TestNamespaceRule(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	for _, tc := range []struct {
		name               string
		change             func(*Options)
		regarding, related runtime.Object
		want, about        string
	}{
		{"namespaced", nil, testPod("a"), node, "ns", "Pod"},
		{"cluster-scoped", nil, node, nil, "kube-system", "Node"},
		{"cluster-scoped, as client-go", func(o *Options) { o.ClusterNamespace = "default" }, node, nil, "default", "Node"},
		{"related namespaced", nil, node, testPod("a"), "kube-system", "Node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, tc.change, func(t *testing.T, r *rig) {
				r.rec.Eventf(tc.regarding, tc.related, "Normal", "R", "A", "")
				synctest.Wait()
				if e := r.one(); e.Namespace != tc.want || e.Regarding.Kind != tc.about {
					t.Errorf("about a %s in %q", e.Regarding.Kind, e.Namespace)
				}
			})
		})
	}
}

// unregistered is an object unknown to every scheme.
type unregistered struct{ corev1.Pod }

func TestBadInputIsCountedAndLogged(t *testing.T) {
	var nilPod *corev1.Pod
	var nilRef *corev1.ObjectReference
	for _, tc := range []struct {
		name string
		obj  runtime.Object
		typ  string
	}{
		{"nil", nil, "Normal"},
		{"a nil pod", nilPod, "Normal"},
		{"a nil reference", nilRef, "Normal"},
		{"unknown to the scheme", &unregistered{}, "Normal"},
		{"a list", &corev1.PodList{}, "Normal"},
		{"no metadata", &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "X", APIVersion: "v1"}}, "Bad"},
		{"type", podRef("a"), "Error"},
		{"no type", podRef("a"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := idleRig(t, eventstest.NewServer(), nil)
			var log []string
			r.rec.WithLogger(logr.New(funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}).GetSink())).
				Eventf(tc.obj, nil, tc.typ, "R", "A", "")
			r.wantBooks(1, 0)
			if len(log) != 1 || !strings.Contains(log[0], "Event not recorded") || !strings.Contains(log[0], "events: ") {
				t.Errorf("logged: %q", log)
			}
		})
	}
}

// TestInvalidEventsAreLoggedOnceInAWhile: a caller that is wrong with each event does not fill the
// log, neither by the number of lines nor by their length.
func TestInvalidEventsAreLoggedOnceInAWhile(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		var log []string
		rec := r.rec.WithLogger(funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}))
		long := strings.Repeat("\xff", 1<<20)
		for range 100 {
			rec.Eventf(nil, nil, "Normal", long, long, "n")
			rec.Eventf(podRef("a"), nil, long, long, long, "n")
		}
		if len(log) != 2 || !strings.Contains(log[0], "the object is nil") || !strings.Contains(log[1], "the type is") {
			t.Errorf("%d lines: %.500q", len(log), log)
		}
		for _, line := range log {
			if len(line) > 2000 {
				t.Errorf("a line of %d bytes: %.100q", len(line), line)
			}
		}
		pass(10*time.Minute + time.Second)
		rec.Eventf(nil, nil, "Normal", "R", "A", "n")
		if len(log) != 3 {
			t.Errorf("%d lines after a while, want 3", len(log))
		}
		r.wantBooks(201, 0)
	})
}

// TestNothingIsKept: the caller may change all arguments after the call.
func TestNothingIsKept(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		annotations := map[string]string{"example.com/a": "1"}
		ref, related := podRef("a"), podRef("b")
		args := []any{&strings.Builder{}}
		args[0].(*strings.Builder).WriteString("before")
		r.rec.AnnotatedEventf(ref, related, annotations, "Normal", "R", "A", "%v", args...)
		annotations["example.com/a"] = "2"
		ref.Name, related.Name = "x", "y"
		args[0].(*strings.Builder).WriteString(" and after")
		synctest.Wait()
		e := r.one()
		if e.Annotations["example.com/a"] != "1" || e.Regarding.Name != "a" || e.Related.Name != "b" || e.Note != "before" {
			t.Errorf("stored: %+v", e)
		}
	})
}

// noisy formats itself by emitting an event.
type noisy struct{ r *Recorder }

func (n noisy) String() string {
	n.r.Eventf(podRef("inner"), nil, "Normal", "R", "A", "")
	return "noise"
}

func TestEventfWithinFormatting(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.rec.Eventf(podRef("outer"), nil, "Normal", "R", "A", "%v", noisy{r.rec})
		synctest.Wait()
		if all := r.server.Events(); len(all) != 2 {
			t.Errorf("stored: %s", brief(all))
		}
	})
}

func TestAnnotationsTheServerWouldRefuse(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.rec.AnnotatedEventf(podRef("a"), nil, map[string]string{
			"good": "1", "bad key": "2", "": "3", "example.com/huge": strings.Repeat("x", 10_000), AnnotationState: "Finished",
		}, "Normal", "R", "A", "")
		synctest.Wait()
		if e := r.one(); len(e.Annotations) != 1 || e.Annotations["good"] != "1" {
			t.Errorf("annotations: %v", e.Annotations)
		}
		if n := r.Stats().AnnotationsDropped; n != 4 {
			t.Errorf("%d were dropped", n)
		}
	})
}

// TestAnnotationsAreMeasuredAsStored: a byte that is no UTF-8 is replaced, by three.
func TestAnnotationsAreMeasuredAsStored(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.rec.AnnotatedEventf(podRef("a"), nil, map[string]string{
			"a": strings.Repeat("a\xff", 4000), // 8001 bytes, and 16,001 as stored
			"b": strings.Repeat("b\xff", 2000),
		}, "Normal", "R", "A", "")
		synctest.Wait()
		size := 0
		for key, value := range r.one().Annotations {
			size += len(key) + len(value)
		}
		if size != 1+2000*(1+3) {
			t.Errorf("%d bytes of annotations are stored, want those of b alone", size)
		}
		if n := r.Stats().AnnotationsDropped; n != 1 {
			t.Errorf("%d were dropped, want 1", n)
		}
	})
}

// TestManyGoroutines: counts are exact whoever emits; for the race detector.
func TestManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, writers := range []int{1, 3} {
			server := eventstest.NewServer()
			server.SetFault(slowly(time.Millisecond))
			r := newRig(t, server, func(o *Options) { o.Writers = writers })
			stop := must(r.StartEventWatcher(func(runtime.Object) {}))(t)
			var all sync.WaitGroup
			for g := range 8 {
				all.Go(func() {
					for i := range 500 {
						r.pod(fmt.Sprint("p", (g+i)%5), 1)
						if i%100 == 0 {
							r.Stats()
							r.Metrics(func(string, float64) {})
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			all.Wait()
			stop()
			pass(6*time.Minute + time.Second)
			if total, _ := stored(server); total != 8*500 {
				t.Errorf("%d writers: %d occurrences are stored, want 4000", writers, total)
			}
			r.wantBooks(0, 0)
		}
	})
}

func TestCountsBeyondTheAPI(t *testing.T) {
	s := newSeries(&seriesKey{}, 0, source{}, &content{})
	if got := s.event(source{}, call{count: math.MaxInt32 + 5, state: stateOngoing}).Series.Count; got != math.MaxInt32 {
		t.Errorf("got %d", got)
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"ClusterNamespace": {ClusterNamespace: "mine"},
		"MaxSeries is -1":  {MaxSeries: -1},
		"FinishAfter":      {FinishAfter: -time.Second},
		"BackoffBase 1h":   {BackoffBase: time.Hour},
		"RosterNamespace":  {RosterNamespace: "no name"},
		"Instance \"xxx":   {Instance: strings.Repeat("x", 200)},
		"Instance \"\\xff": {Instance: "\xff"},
	} {
		o.Sink = eventstest.NewServer().Sink()
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestNoSink: a node agent without an API server has watchers only, and nothing piles up.
func TestNoSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := must(New(Options{}))(t)
		if err := b.StartRecordingToSinkWithContext(t.Context()); !errors.Is(err, ErrNoSink) {
			t.Errorf("recording: %v", err)
		}
		seen := 0
		must(b.StartEventWatcher(func(runtime.Object) { seen++ }))(t)
		r := b.NewRecorder(nil, "c")
		for i := range 100 {
			r.Eventf(podRef(fmt.Sprint(i)), nil, "Normal", "R", "A", "")
		}
		if err := b.ShutdownWithContext(t.Context()); err != nil {
			t.Error(err)
		}
		if s := b.Stats(); seen != 100 || s.Dropped[DropNoSink] != 100 || s.Series != 0 {
			t.Errorf("seen %d, %+v", seen, s)
		}
	})
}

func TestMetrics(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		values := func() map[string]float64 {
			m := map[string]float64{}
			r.Metrics(func(name string, v float64) { m[name] = v })
			return m
		}
		r.pod("a", 10)
		synctest.Wait()
		r.rec.Eventf(nil, nil, "Normal", "R", "A", "")
		r.server.SetFault(during(100*time.Millisecond, errAway))
		r.pod("b", 1)
		synctest.Wait()
		now := values()
		// The write at the start of the series carries the count of its moment, possibly less than
		// ten.
		unsent := 1 + 10 - float64(r.server.Events()[0].Series.Count)
		if now["event_series_active"] != 2 || now["events_unsent"] != unsent || now["event_queue_length"] != 1 || now["event_gate_closed_seconds"] <= 0 {
			t.Errorf("gauges: %v", now)
		}
		if now["event_scopes_closed/server"] != 1 {
			t.Errorf("closed: %v", now)
		}
		pass(7 * time.Minute)
		now = values()
		calls := now["event_calls/"+"create"] + now["event_calls/"+"patch"]
		if calls < 4 || calls > 6 {
			t.Errorf("%v calls", calls)
		}
		delete(now, "event_calls/"+"create")
		delete(now, "event_calls/"+"patch")
		want := map[string]float64{
			"events_emitted": 12, "events_acknowledged": 11, "events_dropped/" + DropInvalid: 1, "event_retries/" + "Unreachable": 1, "event_series/" + "finished": 1,
			"event_annotations_dropped": 0, "event_watch_dropped": 0, "event_series_active": 0, "events_unsent": 0, "event_queue_length": 0, "event_gate_closed_seconds": 0,
			"event_scopes_closed/server": 0, "event_scopes_closed/namespace": 0, "event_scopes_closed/call": 0, "event_scopes_closed/object": 0,
		}
		if d := cmp.Diff(want, now); d != "" {
			t.Error(d)
		}
	})
}

func TestSinkThatReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := must(New(Options{Sink: mute{}}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		b.StartRecordingToSink(ctx.Done())
		r := b.NewRecorder(nil, "c")
		for range 3 {
			r.Eventf(podRef("a"), nil, "Normal", "R", "A", "")
		}
		time.Sleep(10 * time.Minute) // the create may have gone out after the first
		if s := b.Stats(); s.Acknowledged != 3 {
			t.Errorf("books: %+v", s)
		}
	})
}

// mute is a sink with success as its only answer.
type mute struct{}

func (mute) Create(context.Context, *eventsv1.Event) (*eventsv1.Event, error)        { return nil, nil }
func (mute) Update(context.Context, *eventsv1.Event) (*eventsv1.Event, error)        { return nil, nil }
func (mute) Patch(context.Context, *eventsv1.Event, []byte) (*eventsv1.Event, error) { return nil, nil }

// TestUnfitIdentity: occurrences whose names or words have to be made fit for the server are a
// series as others are, with watchers and without.
func TestUnfitIdentity(t *testing.T) {
	for _, watched := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			if watched {
				must(r.StartEventWatcher(func(runtime.Object) {}))(t)
			}
			pod := podRef("a")
			pod.FieldPath = "spec.\xff" + strings.Repeat("x", 2*maxRefField)
			node := podRef("b")
			node.APIVersion = "\xff"
			for range 4 {
				r.rec.Eventf(pod, node, "Normal", strings.Repeat("r", 2*maxWord), "\xff", "")
				pass(time.Second)
			}
			pass(6 * time.Minute)
			r.wantTold("Finished ×4")
			r.wantBooks(0, 0)
		})
	}
}

// asks is an argument that looks at the recorder while the note is formatted.
type asks func() string

func (a asks) String() string { return a() }

// TestBooksWhileANoteIsFormatted: the books balance at every moment.
func TestBooksWhileANoteIsFormatted(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		asked := 0
		r.rec.Eventf(podRef("a"), nil, corev1.EventTypeNormal, "R", "A", "%s", asks(func() string {
			asked++
			r.wantBooks(0, 0)
			return "x"
		}))
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		if n := r.Stats().Emitted; n != 1 {
			t.Errorf("emitted %d", n)
		}
	})
}
