// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

func TestWatchersSeeEveryOccurrenceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idleRig(t, eventstest.NewServer(), nil) // nobody records
		var notes []string
		stop, err := r.StartEventWatcher(func(obj runtime.Object) {
			e := obj.(*eventsv1.Event)
			notes = append(notes, e.Note)
			if e.EventTime.IsZero() || e.Name == "" || e.Namespace != "ns" || e.ReportingInstance != "node-1" {
				t.Errorf("an event is incomplete: %+v", e)
			}
			e.Annotations["mine"] = "now" // handlers should copy; nothing breaks if they do not
		})
		noError(t, err)
		for i := range 900 {
			r.rec.AnnotatedEventf(podRef("a"), nil, map[string]string{"k": "v"}, "Normal", "R", "A", "%d", i)
		}
		synctest.Wait()
		if len(notes) != 900 {
			t.Fatalf("it saw %d", len(notes))
		}
		for i, n := range notes {
			if n != fmt.Sprint(i) {
				t.Fatalf("event %d says %s", i, n)
			}
		}
		stop()
		stop()
		r.pod("a", 1)
		synctest.Wait()
		if len(notes) != 900 {
			t.Error("it sees events after its end")
		}
	})
}

func TestSlowWatcherMissesEventsAndBlocksNobody(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		seen := 0
		must(r.StartEventWatcher(func(runtime.Object) { <-release; seen++ }))(t)
		r.pod("a", 1)
		synctest.Wait() // it is held up with the first one
		r.pod("a", 2999)
		if n := r.Stats().WatchDropped; n != 3000-watchBuffer-1 {
			t.Errorf("%d were missed", n)
		}
		close(release)
		pass(6 * time.Minute)
		if seen != watchBuffer+1 {
			t.Errorf("it saw %d", seen)
		}
		r.wantTold("Finished ×3000")
	})
}

func TestWatchersEndWithTheShutdown(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		seen := 0
		must(r.StartEventWatcher(func(runtime.Object) { time.Sleep(time.Millisecond); seen++ }))(t)
		r.pod("a", 100)
		r.end(time.Minute)
		if seen != 100 {
			t.Errorf("it saw %d of 100", seen)
		}
	})
}

func TestLogging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idleRig(t, eventstest.NewServer(), nil)
		var lines []string
		logger := funcr.New(func(prefix, args string) { lines = append(lines, args) }, funcr.Options{})
		stop := must(r.StartLogging(logger))(t)
		defer stop()
		r.pod("a", 1)
		synctest.Wait()
		if len(lines) != 1 || !strings.Contains(lines[0], "back-off a") || !strings.Contains(lines[0], "BackOff") {
			t.Errorf("logged: %q", lines)
		}
		r.StartStructuredLogging(0)()
	})
}

func TestNilHandler(t *testing.T) {
	r := idleRig(t, eventstest.NewServer(), nil)
	if _, err := r.StartEventWatcher(nil); err == nil {
		t.Error("a nil handler is accepted")
	}
	older := r.Record()
	all := []watch.Interface{older.StartEventWatcher(nil), older.StartLogging(nil)}
	if n := len(r.watchers); n > 0 {
		t.Errorf("%d watchers without a handler", n)
	}
	for _, w := range all {
		w.Stop()
	}
}
