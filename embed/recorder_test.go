// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestWhatLastsIsToldOnceAnHour also checks the counts of suppressed reports.
func TestWhatLastsIsToldOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := record.NewFakeRecorder(1000)
		r := Recorder(told, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
		slow := pleg.Report{Reason: pleg.ReasonRelistSlow, Note: "note"}
		want := func(when string, events ...string) {
			t.Helper()
			var got []string
			for len(told.Events) > 0 {
				got = append(got, <-told.Events)
			}
			if diff := cmp.Diff(events, got); diff != "" {
				t.Errorf("%s: %s", when, diff)
			}
		}
		r.Record(slow)
		time.Sleep(10 * time.Second)
		slow.Held = 3
		r.Record(slow)
		want(
			"at first",
			"Normal RelistSlow note",
			"Normal RelistSlow note (and 3 times more since the last Event of this)",
		)
		slow.Held = 0
		for range 5 * 360 {
			time.Sleep(10 * time.Second)
			r.Record(slow)
		}
		var hourly []string
		for _, n := range []int{358, 359, 359, 359, 359} {
			hourly = append(
				hourly,
				fmt.Sprintf("Normal RelistSlow note (and %d times more since the last Event of this)", n),
			)
		}
		want("in five hours", hourly...)
		r.Record(pleg.Report{Reason: pleg.ReasonStreamLost, Warning: true, Note: "gone"})
		want("another reason", "Warning ContainerEventStreamLost gone")
		for range 30 {
			r.Record(
				pleg.Report{
					Reason: pleg.ReasonInspectFailed,
					Note:   "n",
					Pod:    &pleg.PodRef{UID: "uid", Name: "p", Namespace: "ns"},
				},
			)
		}
		want("of pods", slices.Repeat([]string{"Normal PodInspectFailed n"}, 30)...)
	})
}

// filtered is a recorder with client-go's own filter. Its other methods panic.
type filtered struct {
	record.EventRecorder

	t      *testing.T
	began  time.Time
	filter *record.EventCorrelator
	told   map[string]int // by reason
}

func newFiltered(t *testing.T) *filtered {
	return &filtered{
		t:      t,
		began:  time.Now(),
		filter: record.NewEventCorrelator(clock.RealClock{}),
		told:   make(map[string]int),
	}
}

func (f *filtered) Event(object runtime.Object, kind, reason, note string) {
	f.told[reason]++
	result, err := f.filter.EventCorrelate(&v1.Event{
		InvolvedObject: *object.(*v1.ObjectReference),
		Type:           kind,
		Reason:         reason,
		Message:        note,
		Source:         v1.EventSource{Component: "kubelet", Host: "n"},
	})
	if err != nil || result.Skip {
		f.t.Errorf("after %v client-go drops %s: %v", time.Since(f.began), reason, err)
	}
}

// TestEveryReasonIsTold checks that with all of a generator's reasons at once client-go's recorder
// drops no Event, and that each reason is told when it begins, and again while it lasts.
func TestEveryReasonIsTold(t *testing.T) {
	reasons := []pleg.Reason{
		pleg.ReasonEventsMissed,
		pleg.ReasonEventsOverruled,
		pleg.ReasonChangesUnheard,
		pleg.ReasonRelistSlow,
		pleg.ReasonRelistHangs,
		pleg.ReasonRelistFailed,
		pleg.ReasonWatchOverflow,
		pleg.ReasonStreamRestored,
		pleg.ReasonStreamUnsupported,
		pleg.ReasonStreamLost,
	}
	for _, tt := range []struct {
		name  string
		on    func(at time.Duration, reason int) bool
		least int // Events of each reason
	}{
		{"all the time", func(time.Duration, int) bool { return true }, 13},
		{"hours of rest between", func(at time.Duration, _ int) bool { return at%(82*time.Minute) <= 21*time.Minute }, 10},
		{"short bursts, an hour of rest", func(at time.Duration, _ int) bool { return at%(66*time.Minute) <= 5*time.Minute }, 10},
		{"by turns", func(at time.Duration, i int) bool { return (at/time.Minute+7*time.Duration(i))%75 <= 10 }, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newFiltered(t)
				r := Recorder(all, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
				for time.Since(all.began) < 12*time.Hour {
					for i, reason := range reasons {
						if tt.on(time.Since(all.began), i) {
							r.Record(pleg.Report{Reason: reason, Note: "note"})
						}
					}
					time.Sleep(10 * time.Second)
				}
				for _, reason := range reasons {
					if n := all.told[string(reason)]; n < tt.least {
						t.Errorf("%s is told %d times in 12 hours", reason, n)
					}
				}
			})
		})
	}
}

// TestRecorderOfNothing: without a recorder, as of an agent without an API server, there is none
// for the generator, which then only logs its reports.
func TestRecorderOfNothing(t *testing.T) {
	r := Recorder(nil, &v1.ObjectReference{Kind: "Node", Name: "n"})
	if r != nil {
		t.Errorf("the recorder of nil is %v, and would fail at the first report", r)
	}
}
