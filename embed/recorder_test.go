// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestWhatGoesOnIsToldEverMoreRarely also checks the counts of reports held back.
func TestWhatGoesOnIsToldEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := record.NewFakeRecorder(1000)
		r := Recorder(told, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
		r.Record(pleg.Report{Reason: pleg.ReasonRelistSlow, Note: "note"})
		time.Sleep(500 * time.Millisecond) // so no report falls on the end of a pause
		for range 300 * 60 {
			r.Record(pleg.Report{Reason: pleg.ReasonRelistSlow, Note: "note"})
			time.Sleep(time.Second)
		}
		want := []string{
			"note", "note (1s ago) (and 59 times more", "note (1s ago) (and 239 times more", "note (1s ago) (and 959 times more",
			"note (1s ago) (and 3599 times more", "note (1s ago) (and 3599 times more", "note (1s ago) (and 3599 times more",
			"note (1s ago) (and 3599 times more",
		}
		var got []string
		for len(told.Events) > 0 {
			e, _, _ := strings.Cut(<-told.Events, " since")
			got = append(got, strings.TrimPrefix(e, "Normal RelistSlow "))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		time.Sleep(time.Hour)
		if e := <-told.Events; !strings.HasPrefix(e, "Normal RelistSlow note (") || len(told.Events) != 0 {
			t.Errorf("what was held when it ended is told as %q, and %d Events", e, len(told.Events))
		}
		time.Sleep(time.Hour)
		r.Record(pleg.Report{Reason: pleg.ReasonRelistSlow, Note: "again"})
		for range 30 {
			r.Record(pleg.Report{Reason: pleg.ReasonInspectFailed, Note: "n", Pod: &pleg.PodRef{UID: "uid", Name: "p", Namespace: "ns"}})
		}
		if e := <-told.Events; e != "Normal RelistSlow again" || len(told.Events) != 30 {
			t.Errorf("after an hour of rest: %q, and %d of pods", e, len(told.Events))
		}
	})
}

// TestWhatIsHeldIsTold checks that a condition reported within the pause, and not again, is sent
// after the pause, with its age and the count, once.
func TestWhatIsHeldIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := record.NewFakeRecorder(1000)
		r := Recorder(told, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
		want := func(when string, events ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for len(told.Events) > 0 {
				got = append(got, <-told.Events)
			}
			if !slices.Equal(got, events) {
				t.Errorf("%s: told %q, want %q", when, got, events)
			}
		}
		failed := pleg.Report{Reason: pleg.ReasonRelistFailed, Warning: true, Note: "note"}
		r.Record(failed)
		want("at once", "Warning RelistFailed note")
		time.Sleep(10 * time.Second)
		r.Record(failed)
		time.Sleep(10 * time.Second)
		failed.Held, failed.Note = 7, "another"
		r.Record(failed)
		time.Sleep(39 * time.Second)
		want("within the pause")
		time.Sleep(time.Second)
		want("after it", "Warning RelistFailed another (40s ago) (and 8 times more since the last Event of this)")
		failed.Held = 0
		r.Record(failed)
		time.Sleep(4 * time.Minute)
		want("after the next", "Warning RelistFailed another (4m0s ago)")
		time.Sleep(5 * time.Hour)
		want("hours later")
	})
}

// TestWhatIsHeldWaitsForTheAllowance checks that it is sent once there is room, and no sooner.
func TestWhatIsHeldWaitsForTheAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiltered(t)
		r := Recorder(f, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
		for _, reason := range manyReasons(30) {
			r.Record(pleg.Report{Reason: reason, Note: "note"})
		}
		time.Sleep(12 * time.Hour)
		for _, reason := range manyReasons(30) {
			if n := len(f.times(string(reason))); n != 1 {
				t.Errorf("%s came up once, and is told %d times", reason, n)
			}
		}
	})
}

// filtered is a recorder with client-go's own filter. Its other methods panic.
type filtered struct {
	record.EventRecorder

	t      *testing.T
	began  time.Time
	filter *record.EventCorrelator
	mu     sync.Mutex                 // timers tell too
	told   map[string][]time.Duration // by reason, when
}

type realClock struct{}

func (realClock) Now() time.Time                  { return time.Now() }
func (realClock) Since(t time.Time) time.Duration { return time.Since(t) }

func newFiltered(t *testing.T) *filtered {
	return &filtered{t: t, began: time.Now(), filter: record.NewEventCorrelator(realClock{}), told: make(map[string][]time.Duration)}
}

func (f *filtered) Event(object runtime.Object, kind, reason, note string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Since(f.began)
	f.told[reason] = append(f.told[reason], at)
	result, err := f.filter.EventCorrelate(&v1.Event{
		InvolvedObject: *object.(*v1.ObjectReference), Type: kind, Reason: reason, Message: note, Source: v1.EventSource{Component: "kubelet", Host: "n"},
	})
	if err != nil || result.Skip {
		f.t.Errorf("after %v client-go drops %s: %v", at, reason, err)
	}
}

// times returns when a reason was told.
func (f *filtered) times(reason string) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told[reason])
}

// TestALostStreamIsAlwaysTold checks that with any number of other conditions client-go's recorder
// drops no Event, and a lost stream is sent at once.
func TestALostStreamIsAlwaysTold(t *testing.T) {
	reasons := []pleg.Reason{
		pleg.ReasonEventsMissed, pleg.ReasonEventsOverruled, pleg.ReasonRelistSlow, pleg.ReasonRelistFailed, pleg.ReasonWatchOverflow,
		pleg.ReasonStreamRestored, pleg.ReasonStreamUnsupported, pleg.ReasonStreamLost,
	}
	everything := func(time.Duration, int) bool { return true }
	for _, tt := range []struct {
		name    string
		reasons []pleg.Reason
		on      func(at time.Duration, reason int) bool
		least   int // Events of each reason
	}{
		{"all the time", reasons, everything, 6},
		{"far more reasons", append(manyReasons(50), reasons...), everything, 0},
		{"hours of rest between", reasons, func(at time.Duration, _ int) bool { return at%(82*time.Minute) <= 21*time.Minute }, 9},
		{"short bursts, an hour of rest", reasons, func(at time.Duration, _ int) bool { return at%(66*time.Minute) <= 5*time.Minute }, 9},
		{"by turns", reasons, func(at time.Duration, i int) bool { return (at/time.Minute+7*time.Duration(i))%75 <= 10 }, 9},
		{"at random", reasons, atRandom(1), 1},
		{"at random, more reasons", append(manyReasons(5), reasons...), atRandom(2), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"}
				all, lostOnly := newFiltered(t), newFiltered(t)
				r, alone := Recorder(all, node), Recorder(lostOnly, node)
				for time.Since(all.began) < 12*time.Hour {
					for i, reason := range tt.reasons {
						if !tt.on(time.Since(all.began), i) {
							continue
						}
						r.Record(pleg.Report{Reason: reason, Note: "note"})
						if reason == pleg.ReasonStreamLost {
							alone.Record(pleg.Report{Reason: reason, Note: "note"})
						}
					}
					time.Sleep(9973 * time.Millisecond) // no report comes in the very instant in which a pause ends
				}
				lost := string(pleg.ReasonStreamLost)
				if want, got := lostOnly.times(lost), all.times(lost); len(want) < 5 || !slices.Equal(want, got) {
					t.Errorf("lost streams are told at %v, alone at %v", got, want)
				}
				for _, reason := range tt.reasons {
					if n := len(all.times(string(reason))); n < tt.least {
						t.Errorf("%s is told %d times in 12 hours", reason, n)
					}
				}
			})
		})
	}
}

// TestANewReasonIsToldAtOnce: where other reasons have gone on for hours.
func TestANewReasonIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiltered(t)
		r := Recorder(f, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
		for range 5 * 3600 {
			for _, reason := range manyReasons(4) {
				r.Record(pleg.Report{Reason: reason, Note: "note"})
			}
			time.Sleep(time.Second)
		}
		for _, reason := range []pleg.Reason{pleg.ReasonRelistFailed, pleg.ReasonStreamUnsupported, pleg.ReasonStreamLost, pleg.ReasonStreamRestored} {
			r.Record(pleg.Report{Reason: reason, Note: "note"})
			if len(f.times(string(reason))) != 1 {
				t.Errorf("%s is held back", reason)
			}
		}
	})
}

func manyReasons(n int) (all []pleg.Reason) {
	for i := range n {
		all = append(all, pleg.Reason(fmt.Sprint("Reason", i)))
	}
	return all
}

// atRandom has each reason come and go, for seconds to an hour and a half each.
func atRandom(seed uint64) func(time.Duration, int) bool {
	random := rand.New(rand.NewPCG(seed, 0))
	until, on := make(map[int]time.Duration), make(map[int]bool)
	return func(at time.Duration, reason int) bool {
		for at >= until[reason] {
			on[reason] = !on[reason]
			until[reason] += time.Second << random.IntN(13) * 13 / 10
		}
		return on[reason]
	}
}
