// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"flag"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

var showLoops = flag.Bool("events.show", false, "print what TestShownOfLoops and TestWeathers measure, as the tables of docs/events.md")

// coreSink is a server for client-go's older recorder, as in a kubelet.
type coreSink struct{ *eventstest.LegacySink }

func (s coreSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.LegacySink.Create(context.Background(), e)
}

func (s coreSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.LegacySink.Update(context.Background(), e)
}

func (s coreSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.LegacySink.Patch(context.Background(), e, data)
}

// loop is a recurring event, by the pauses between its occurrences.
type loop struct {
	name  string
	pause func(i int) time.Duration
}

func every(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

var loops = []loop{
	{"every 5 min", every(5 * time.Minute)},
	{"crash loop, 10 to 300 s", func(i int) time.Duration { return min(10*time.Second<<min(i, 10), 300*time.Second) }},
	{"every minute", every(time.Minute)},
	{"every 15 s", every(15 * time.Second)},
	{"every second", every(time.Second)},
}

// shownWrong runs a loop for an hour. It returns the share of the time with a wrong count at the
// server, the largest age of the newest occurrence at the server, and the calls.
func shownWrong(t *testing.T, l loop, ours bool) (wrong float64, stale time.Duration, calls int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		var emit func()
		var stop func()
		if ours {
			r := newRig(t, server, nil)
			legacy := r.NewLegacyRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: "node-1"})
			emit, stop = func() { legacy.Event(podRef("a"), "Warning", "BackOff", "back-off") }, r.stop
		} else {
			ctx, cancel := context.WithCancel(t.Context())
			b := record.NewBroadcaster(record.WithContext(ctx))
			b.StartRecordingToSink(coreSink{server.LegacySink()})
			r := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: "node-1"})
			emit, stop = func() { r.Event(podRef("a"), "Warning", "BackOff", "back-off") }, func() { b.Shutdown(); cancel() }
		}
		begin := time.Now()
		var last time.Time
		var off time.Duration
		told := int64(0)
		for i := 0; time.Since(begin) < time.Hour; i++ {
			emit()
			told, last = told+1, time.Now()
			for pause := l.pause(i); pause > 0; pause -= time.Second {
				synctest.Wait()
				count, _ := stored(server)
				if count != told {
					off += time.Second
				}
				for _, e := range server.Events() {
					seen := e.DeprecatedLastTimestamp.Time
					if e.Series != nil {
						seen = e.Series.LastObservedTime.Time
					} else if seen.IsZero() {
						seen = e.EventTime.Time
					}
					stale = max(stale, last.Sub(seen).Truncate(time.Second))
				}
				time.Sleep(time.Second)
			}
		}
		wrong = float64(off) / float64(time.Since(begin))
		calls, _ = server.Count()
		stop()
		time.Sleep(time.Minute)
	})
	return wrong, stale, calls
}

// TestShownOfLoops: an active loop is shown as active, at least as well as by a kubelet's recorder
// today, and for no more calls.
func TestShownOfLoops(t *testing.T) {
	for _, l := range loops {
		wrong, stale, calls := shownWrong(t, l, true)
		theirs, staleTheirs, callsTheirs := shownWrong(t, l, false)
		if *showLoops {
			t.Logf("| %s | %.0f %%, %v, %d | %.0f %%, %v, %d |", l.name, 100*wrong, stale, calls, 100*theirs, staleTheirs, callsTheirs)
		}
		if wrong > theirs+0.01 {
			t.Errorf("%s: wrong for %.0f %% of the time, client-go for %.0f %%", l.name, 100*wrong, 100*theirs)
		}
		if calls > callsTheirs {
			t.Errorf("%s: %d calls, client-go %d", l.name, calls, callsTheirs)
		}
	}
}
