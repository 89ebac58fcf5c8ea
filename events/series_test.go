// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestProposalLifeOfASeries(t *testing.T) {
	e := play(t, `ttl=3h start a×1 0s [a: single] 1s a×1 0s [a: Ongoing ×2] 1s a×500 1s a×500 0s [a: Ongoing ×2] [calls: create patch]
		8s [calls: create patch patch] [a: Ongoing ×1002] 5m51.999999999s [calls: create patch patch]
		1ns [calls: create patch patch patch] [a: Finished ×1002] 2h [calls: create patch patch patch]`, nil, nil)[0]
	if age := e.Series.LastObservedTime.Sub(e.EventTime.Time); age != 3*time.Second {
		t.Errorf("lastObservedTime is %v after the begin, want 3s", age)
	}
}

// TestHotLoopCalls: ten occurrences a second for four hours. The object has tokens: after the first
// minutes there is a write in a little less than five minutes, which takes them.
func TestHotLoopCalls(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		begin := time.Now()
		const seconds, starting = 4 * 3600, 2 // create, and the second occurrence's patch
		r.pod("a", 1)
		synctest.Wait()
		r.pod("a", 9)
		for range seconds - 1 {
			time.Sleep(time.Second)
			r.pod("a", 10)
		}
		pass(6 * time.Minute)
		calls := r.server.Calls()
		if n := len(calls); n > 4*15+starting+firstWrites {
			t.Fatalf("%d calls: %s", n, r.verbs())
		}
		prev := begin
		for i, c := range calls[starting:] {
			most := 5 * time.Minute
			if i < firstWrites {
				most = firstPause
			}
			d := c.At.Sub(prev)
			if last := i == len(calls)-starting-1; d.Truncate(time.Second) > most && !last {
				t.Errorf("write %d after %v", i, d)
			}
			prev = c.At
		}
		r.wantTold("Finished ×144000")
		r.wantBooks(0, 0)
	})
}

// TestPauses: the pauses between the writes of a loop, with tokens and without.
func TestPauses(t *testing.T) {
	o := Options{Heartbeat: 30 * time.Minute}
	s := state{}
	for i, want := range []struct{ tokens, none time.Duration }{
		{10 * time.Second, 2 * time.Minute},
		{10 * time.Second, 4 * time.Minute},
		{10 * time.Second, 8 * time.Minute},
		{10 * time.Second, 16 * time.Minute},
		{10 * time.Second, 30 * time.Minute},
		{10 * time.Second, 30 * time.Minute},
		{time.Minute, 30 * time.Minute},
		{2 * time.Minute, 30 * time.Minute},
		{4 * time.Minute, 30 * time.Minute},
		{277875 * time.Millisecond, 30 * time.Minute},
	} {
		s.writes = uint8(i)
		if tokens, none := s.pause(0.5, true, &o), s.pause(0.5, false, &o); tokens != want.tokens || none != want.none {
			t.Errorf("after %d writes: %v, without tokens %v", i, tokens, none)
		}
	}
}

func TestRecurringSingletonsDoNotProbe(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		const n = 60
		for range n {
			r.pod("a", 1)
			pass(7 * time.Minute)
		}
		if all, failed := r.server.Count(); failed != 0 || all > n+n/3 {
			t.Errorf("%d calls, %d of them failed, for %d events", all, failed, n)
		}
		if stored := len(r.server.Events()); stored < 8 {
			t.Errorf("only %d of an hour's events are there", stored)
		}
		r.wantBooks(0, 0)
	})
}

func TestWhatMakesAnotherSeries(t *testing.T) {
	type event struct {
		regarding, related         runtime.Object
		annotations                map[string]string
		kind, reason, action, note string
	}
	about := func(change func(*corev1.ObjectReference)) func(*event) {
		ref := podRef("a")
		change(ref)
		return func(e *event) { e.regarding = ref }
	}
	for _, tc := range []struct {
		name   string
		change func(*event)
		want   int // series in all, the first included
	}{
		{"another note", func(e *event) { e.note = "other %d" }, 1},
		{"annotations", func(e *event) { e.annotations = map[string]string{"k": "v"} }, 1},
		{"another resourceVersion", about(func(r *corev1.ObjectReference) { r.ResourceVersion = "99" }), 1},
		{"the object itself", func(e *event) { e.regarding = testPod("a") }, 1},
		{"the object with a part of its kind", func(e *event) {
			pod := testPod("a")
			pod.Kind = "Pod"
			e.regarding = pod
		}, 1},
		{"the object with the other part", func(e *event) {
			pod := testPod("a")
			pod.APIVersion = "v1"
			e.regarding = pod
		}, 1},
		{"a typed nil as the related object", func(e *event) { e.related = (*corev1.Pod)(nil) }, 1},
		{"another type", func(e *event) { e.kind = "Warning" }, 2},
		{"another reason", func(e *event) { e.reason = "R2" }, 2},
		{"another action", func(e *event) { e.action = "A2" }, 2},
		{"a related object", func(e *event) { e.related = podRef("b") }, 2},
		{"another UID", about(func(r *corev1.ObjectReference) { r.UID = "reborn" }), 2},
		{"another container", about(func(r *corev1.ObjectReference) { r.FieldPath = "spec.containers{b}" }), 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				e := event{podRef("a"), nil, nil, "Normal", "R", "A", "note"}
				for range 2 {
					r.rec.AnnotatedEventf(e.regarding, e.related, e.annotations, e.kind, e.reason, e.action, e.note)
					tc.change(&e)
				}
				synctest.Wait()
				all := r.server.Events()
				if len(all) != tc.want {
					t.Errorf("%d series, want %d: %s", len(all), tc.want, brief(all))
				}
				if all[0].Note != "note" {
					t.Errorf("the note is %q, want the first one", all[0].Note)
				}
			})
		})
	}
}

func TestEventsOfOneObjectInOrder(t *testing.T) {
	for _, writers := range []int{1, 4} {
		t.Run(map[int]string{1: "one writer", 4: "four writers"}[writers], func(t *testing.T) {
			bubble(t, func(o *Options) { o.Writers, o.MaxPerObject, o.Burst = writers, -1, -1 }, func(t *testing.T, r *rig) {
				r.server.SetFault(slowly(time.Millisecond))
				const n = 500
				for i := range n {
					r.rec.Eventf(podRef("a"), nil, corev1.EventTypeNormal, reasonOf(i), "A", "")
				}
				pass(time.Minute)
				all := r.server.Events()
				if len(all) != n {
					t.Fatalf("%d events, want %d", len(all), n)
				}
				for i := range all {
					if all[i].Reason != reasonOf(i) {
						t.Fatalf("event %d is %s", i, all[i].Reason)
					}
				}
			})
		})
	}
}

// TestClockThatIsSet: the last occurrence of another process counts by this process's clock: where
// the time of day is set back afterwards, the series ends as if it were not.
func TestClockThatIsSet(t *testing.T) {
	now := time.Now()
	s := begin(now.Add(-time.Hour))
	stored := now.Add(-time.Minute).Round(0) // as read from an object
	s.merge(found{count: 5, last: stored}, now)
	if !s.last.Equal(stored) || s.last == s.last.Round(0) {
		t.Errorf("the last occurrence is of %v, want %v by this process's clock", s.last, stored)
	}
}

// TestPatchOfNoAnnotations checks that a patch without annotations leaves those of the server: in a
// merge patch null deletes.
func TestPatchOfNoAnnotations(t *testing.T) {
	if got, want := string(patchBody(&eventsv1.Event{}, nil)), `{"metadata":{}}`; got != want {
		t.Errorf("the patch is %s, want %s", got, want)
	}
}
