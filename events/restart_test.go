// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// continuing lets a process find the series of an earlier one.
func continuing(o *Options) { o.NoRoster = false }

// command is a command of a history: an expectation or a word.
var command = regexp.MustCompile(`\[(\w+): ([^\]]*)\]|\S+`)

// play runs a history of processes that share an instance and a server, and returns the stored
// events:
//
//	start, idle    a process begins, recording or not; run begins to record
//	end, kill      the process ends in order, within a second, or is killed
//	stop           its recording ends by its context
//	other          it makes another recorder, for what it emits from now on
//	a×3            it emits three isomorphic events about the pod a
//	10m            time passes
//	fault, mended  the fault begins and ends
//	ttl=10s        the server keeps for so long what is written from now on
//	[a: single]    the events about a say this
//	[calls: patch] these calls were received
func play(t *testing.T, history string, fault eventstest.Fault, change func(*Options)) (stored []eventsv1.Event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		var r *rig
		for _, c := range command.FindAllStringSubmatch(history, -1) {
			name, times, emits := strings.Cut(c[0], "×")
			ttl, keeps := strings.CutPrefix(c[0], "ttl=")
			switch word := c[0]; {
			case c[1] == "calls":
				r.wantVerbs(c[2])
			case c[1] != "":
				r.wantAbout(c[1], c[2])
			case emits:
				r.pod(name, must(strconv.Atoi(times))(t))
			case keeps:
				server.SetTTL(must(time.ParseDuration(ttl))(t))
			case word == "start":
				r = newRig(t, server, change)
			case word == "idle":
				r = idleRig(t, server, change)
			case word == "run":
				r.start()
			case word == "end":
				r.end(time.Second)
			case word == "kill":
				r.kill()
			case word == "stop":
				r.stop()
				synctest.Wait()
			case word == "other":
				r.rec = r.NewRecorder(nil, "evented-pleg.dev/other").(*Recorder)
			case word == "fault":
				server.SetFault(fault)
			case word == "mended":
				server.SetFault(nil)
			default:
				pass(must(time.ParseDuration(word))(t))
			}
		}
		r.wantBooks(0, 0)
		stored = server.Events()
	})
	return stored
}

// TestHistories: series over pauses, restarts, ends and faults.
func TestHistories(t *testing.T) {
	elsewhere := func(c eventstest.Call) bool { return c.Namespace != "ns" }
	patchOf := func(name string) func(eventstest.Call) bool {
		return func(c eventstest.Call) bool { return c.Verb == eventstest.Patch && strings.Contains(c.Name, name) }
	}
	changeOrA := func(c eventstest.Call) bool { // of the roster: then the whole follows
		return patchOf("a.")(c) || strings.Contains(c.Body, AnnotationRoster+".") && !strings.Contains(c.Body, AnnotationRoster+`":`)
	}
	for _, tc := range []struct {
		name, history string
		fault         eventstest.Fault
		change        func(*Options)
	}{
		{name: "a pause short of the threshold", history: "start a×2 5m59.999999999s a×3 5m59.999999999s a×1 6m [a: Finished ×6]"},
		{name: "another series begins after the threshold", history: "start a×2 6m a×3 6m a×1 6m [a: Finished ×2, Finished ×3, single]"},
		{name: "and over restarts", history: `start a×2 1s end 10m start a×3 1s end 10m start a×4 1s end
			1m start a×5 1s end [a: Unknown ×2, Unknown ×3, Unknown ×9]`},
		{name: "adopted series do not keep new series from the roster", history: `start old×3 1s end
			start 1s new×2 1s kill start new×1 old×1 1s [new: Ongoing ≥3] [old: Ongoing ×4]`},
		{name: "what a process has ended stays as it is when that process is killed", history: `start end×3 once×1 old×3 1s end 5m
			start old×1 15m [end: Finished ×3] [old: Finished ×4] kill start 15m [end: Finished ×3] [old: Finished ×4] [once: single]`},
		{name: "also what it had replaced", history: `start a×3 old×3 1s end 10m
			start old×2 1s a×1 5m old×1 5m [a: Unknown ×3, single] kill start 15m [a: Unknown ×3, single]`},
		{name: "what a killed process has left stays that of a killed one", history: `start a×2 b×2 1s kill start c×1 1s end 1m
			start b×1 15m [a: Unknown ≥2] [b: Finished ≥3]`},
		{name: "also where nothing continues it", history: `start a×2 1s kill start c×1 1s end 10m start 15m [a: Unknown ≥2]`},
		{name: "and what another has left is exact, whoever is killed", history: `start a×3 1s end 1m start c×2 1s kill 1m
			start 15m [a: Finished ×3]`},
		{name: "the object has expired", history: "start ttl=10s a×2 0s ttl=1h 10s kill start a×3 1m [a: Ongoing ×3]"}, // the roster has not
		{name: "the context ends before the shutdown", history: "start a×2 0s stop a×8 b×1 1s end [a: Unknown ×10] [b: single]"},
		{name: "recording goes on", history: "start a×2 0s stop a×3 run 6m [a: Finished ×5]"},
		{
			name: "the hand-over waits for the server", fault: always(errAway),
			history: "start a×3 1s end fault start a×2 3m mended 1m [a: Ongoing ×5]",
		},
		{
			name: "an outage ends just before the shutdown", fault: always(errAway),
			history: "fault start a×3 50s b×3 50s c×3 50s mended end [a: Unknown ×3] [b: Unknown ×3] [c: Unknown ×3]",
		},
		{
			name: "the roster is refused", fault: where(elsewhere, always(forbidden("x"))),
			history: "fault idle a×3 run 10m [a: Finished ×3] [calls: patch! create create! patch] end",
		},
		{
			name: "a role for one namespace", fault: where(elsewhere, always(forbidden("x"))),
			change:  func(o *Options) { o.NoRoster, o.RosterNamespace = false, "ns" },
			history: "fault start a×5 1s end start a×5 1s end start a×5 1s end [a: Unknown ×15]",
		},
		{
			name: "a roster due while another source's is being read is written afterwards", fault: slowly(3 * time.Second),
			history: "start a×2 0s fault other 10s mended kill start a×1 1s [a: Ongoing ≥3]",
		},
		{
			name: "an end that waits is in the roster", fault: where(patchOf("a."), always(errReset)),
			history: `start a×2 1s fault 7m b×2 15s c×2 15s d×2 15s e×2 15s f×2 15s kill
				mended start 15m [a: Unknown ≥2]`,
		},
		{
			name: "so is the end of another process's series", fault: where(changeOrA, always(errReset)),
			history: `start a×1 1s z×2 1s a×1 1s kill fault start 12m b×2 30s kill
				mended start 15m [a: Unknown ≥2] [b: Unknown ≥2]`,
		},
		{
			name: "so is a series that was evicted and goes on while that is in doubt",
			fault: func(ctx context.Context, c eventstest.Call) error {
				if patchOf("a.")(c) {
					return status(503, "", 300)
				}
				return where(changeOrA, always(errReset))(ctx, c)
			},
			change:  func(o *Options) { o.NoRoster, o.MaxSeries = false, 2 },
			history: "start a×2 1s b×2 15s fault b×1 c×2 1s a×1 30s kill mended start 15m [a: Unknown ≥2]",
		},
		{
			name: "what a create of the roster without an answer names is taken out at the end",
			fault: func() eventstest.Fault {
				calls := 0
				return where(func(c eventstest.Call) bool { return elsewhere(c) && c.Body != "{}" },
					func(context.Context, eventstest.Call) error {
						calls++
						if calls > 1 {
							return status(429, metav1.StatusReasonTooManyRequests, 0)
						}
						return &eventstest.LateError{Err: errReset}
					})
			}(),
			history: "start fault a×2 10m [a: Finished ×2] mended end start 15m [a: Finished ×2]",
		},
		{
			name: "the hand-over where the roster could not be read before", fault: where(elsewhere, always(status(503, "", 0))),
			history: "fault start a×3 1m mended end start a×2 1s end [a: Unknown ×5]",
		},
		{
			name:    "what a killed process has left, where the roster cannot be read for minutes",
			fault:   where(elsewhere, always(status(503, "", 0))),
			history: "start a×2 1s kill fault start b×2 5m mended b×1 5m30s [b: Ongoing ×3] 10m [a: Unknown ≥2]",
		},
		{
			name: "what is being continued is in the roster before it is read", fault: where(patchOf("a."), always(errReset)),
			history: "start a×2 1s kill fault start a×1 b×2 15s kill mended start 15m [a: Unknown ≥2]",
		},
		{
			name: "what begins in place of an expired object is in the roster", fault: where(patchOf("a."), always(errReset)),
			history: `start ttl=10s a×2 0s ttl=1h 10s kill fault start a×1 b×2 15s mended 1m a×2 30s kill
				start 15m [a: Unknown ≥3]`,
		},
		{
			name: "the server hangs at the roster", fault: where(patchOf("roster"), slowly(time.Hour)),
			history: "start a×3 1s end fault start c×1 15m [c: single]",
		},
		{
			name: "the server hangs at a series of the roster", fault: where(patchOf("a."), slowly(time.Hour)),
			history: "start a×3 b×3 1s end fault start c×1 15m [c: single] [b: Finished ×3]",
		},
	} {
		if tc.change == nil {
			tc.change = continuing
		}
		t.Run(tc.name, func(t *testing.T) { play(t, tc.history, tc.fault, tc.change) })
	}
}

// TestDroppedBeforeItIsRead: a series that continues an earlier process's object is dropped before
// the object is read, for lack of room. The object is ended all the same.
func TestDroppedBeforeItIsRead(t *testing.T) {
	for _, ends := range []bool{false, true} { // by this process, or by the next
		synctest.Test(t, func(t *testing.T) {
			server := eventstest.NewServer()
			first := newRig(t, server, continuing)
			first.pods(3, 2)
			pass(time.Second)
			first.kill()
			server.SetFault(where(inNS, always(errReset)))
			r := newRig(t, server, func(o *Options) {
				continuing(o)
				o.MaxQueue = 3
			})
			r.pods(3, 1)
			pass(time.Second)
			r.in("other", "b")
			pass(15 * time.Second)
			if n := r.Stats().Dropped[DropQueueFull]; n != 1 {
				t.Errorf("%d are dropped: the test proves nothing", n)
			}
			if !ends {
				r.kill()
				newRig(t, server, continuing)
			}
			server.SetFault(nil)
			pass(20 * time.Minute)
			for _, e := range server.Events() {
				if e.Annotations[AnnotationState] == stateOngoing {
					t.Errorf("%s is %s", e.Name, told(&e))
				}
			}
		})
	}
}

// TestRestarts: a process ends in order and restarts ten times in the middle of a series. A single
// object has the exact count.
func TestRestarts(t *testing.T) {
	for _, each := range []int{1, 100} {
		process := "start " + strings.Repeat("a×1 100ms ", each) + "end 1m "
		play(t, strings.Repeat(process, 11)+fmt.Sprintf("start [a: Unknown ×%d] a×1 6m [a: Finished ×%d]", 11*each, 11*each+1), nil, continuing)
	}
}

// TestRestartOfALongSeries: a series and the roster last for five hours; a restart still finds the
// series. The count of a killed process is a lower bound.
func TestRestartOfALongSeries(t *testing.T) {
	const n = 5 * 60
	for ends, least := range map[string]int32{"end": n + 1, "kill": n - 31} {
		e := about(play(t, "start "+strings.Repeat("a×1 1m ", n)+ends+" start a×1 6m", nil, continuing), "a")
		if len(e) != 1 || e[0].Annotations[AnnotationState] != stateFinished || e[0].Series.Count < least || e[0].Series.Count > n+1 ||
			(ends == "kill") != (e[0].Annotations[AnnotationAtLeast] == "true") {
			t.Errorf("%s: stored: %s", ends, brief(e))
		}
	}
}

// TestKilled: a process is killed in the middle of a crash loop. Its series is continued where
// possible, and otherwise no longer Ongoing.
func TestKilled(t *testing.T) {
	for _, after := range []string{
		"10s start 1s a×3 6m1s [a: Finished ≥5]",
		"35m start 1s a×3 6m1s [a: Finished ≥5]", // within heartbeat and threshold
		"45m start 1s a×3 6m1s [a: Unknown ≥2, Finished ×3]",
		"10s start 6m1s [a: Unknown ≥2]",
		"35m start 6m1s [a: Unknown ≥2]",
		"45m start 6m1s [a: Unknown ≥2]",
	} {
		t.Run(after, func(t *testing.T) {
			e := play(t, "start a×1 1s a×1 1s [a: Ongoing ×2] kill "+after, nil, continuing)[0]
			if age := e.Series.LastObservedTime.Sub(e.EventTime.Time); age != time.Second && !strings.Contains(after, "Finished ≥") {
				t.Errorf("it was last seen %v after its begin: nothing occurred then", age)
			}
		})
	}
}

// TestWhoClosesWhatAKillLeaves: a process with the instance of a killed process closes the series
// that are left Ongoing, whatever it reports itself. With another instance nobody does: the object
// says Ongoing until the server forgets it, an hour after its last write. docs/events.md says so.
func TestWhoClosesWhatAKillLeaves(t *testing.T) {
	for _, tc := range []struct {
		name, history string
		instances     []string
	}{
		{"the same, with the series", "a×1 6m1s [a: Finished ≥3]", []string{"leader", "leader"}},
		{"the same, with another series", "b×3 6m1s [a: Unknown ≥2] [b: Finished ×3]", []string{"leader", "leader"}},
		{"the same, after another", `a×3 6m1s [a: Ongoing ×2, Finished ×3]
			kill start 6m1s [a: Unknown ≥2, Finished ×3]`, []string{"leader", "pod-2", "leader"}},
		{"another", `a×3 6m1s [a: Ongoing ×2, Finished ×3]
			53m [a: Ongoing ×2, Finished ×3] 1m [a: Finished ×3]`, []string{"pod-1", "pod-2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := 0
			play(t, "start ttl=1h a×1 1s a×1 1s [a: Ongoing ×2] kill 10s start "+tc.history, nil, func(o *Options) {
				continuing(o)
				o.Instance = tc.instances[next]
				next++
			})
			if next != len(tc.instances) {
				t.Errorf("%d processes have run, want %d", next, len(tc.instances))
			}
		})
	}
}

// TestRosterReadDuringAFirstWrite: the roster can be read at last, while an object is being created
// for a series that it names. The series keeps the new object, and the old one ends.
func TestRosterReadDuringAFirstWrite(t *testing.T) {
	slow := slowly(28 * time.Second)
	reads := 0
	fault := func(ctx context.Context, c eventstest.Call) error {
		switch {
		case c.Verb == eventstest.Create && c.Namespace == "ns":
			return slow(ctx, c)
		case c.Namespace != "ns" && reads < restoreTries:
			reads++
			return status(503, metav1.StatusReasonServiceUnavailable, 0)
		}
		return nil
	}
	play(t, `start a×4 1s end fault start a×3 20m [a: Finished ×4, Finished ×3]`, fault, continuing)
}

// TestSourceAfterStart: a recorder made during recording also finds its predecessor's series.
func TestSourceAfterStart(t *testing.T) {
	play(t, "start 1s other late×3 1s end start 1s other late×3 1s end [late: Unknown ×6]", nil, continuing)
}

// TestCreateOnlyRole: a role with create but not patch keeps its first events; the unwritten rest
// is counted.
func TestCreateOnlyRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(where(func(c eventstest.Call) bool { return c.Verb == eventstest.Patch }, always(apierrors.NewForbidden(resource, "x", errors.New("no")))))
		for range 2 {
			r := newRig(t, server, nil)
			r.pod("a", 1)
			pass(time.Second)
			r.pod("a", 2)
			pass(time.Second)
			_ = r.shutdown(time.Second)
			r.wantBooks(2, 0)
		}
		if n := len(server.Events()); n != 2 {
			t.Errorf("%d events", n)
		}
	})
}

func TestClockBehindTheStoredEvent(t *testing.T) {
	p := Options{FinishAfter: 6 * time.Minute, Heartbeat: 30 * time.Minute}
	now := time.Now()
	for _, tc := range []struct {
		state string
		ahead time.Duration
		want  bool
	}{
		{stateUnknown, 0, true}, {stateUnknown, 5 * time.Minute, true}, {stateUnknown, -5 * time.Minute, true},
		{stateUnknown, 6 * time.Minute, false}, {stateUnknown, -6 * time.Minute, false}, {stateUnknown, time.Hour, false},
		{stateOngoing, -38 * time.Minute, true}, {stateOngoing, -39 * time.Minute, false}, {stateFinished, 0, false},
	} {
		f := found{count: 9, begun: now.Add(tc.ahead - time.Hour), last: now.Add(tc.ahead), state: tc.state}
		if goOn, _ := f.continues(now, &p); goOn != tc.want {
			t.Errorf("%s, %v ahead: continued is %t", tc.state, tc.ahead, goOn)
		}
	}
}

// TestNamesAreInTheOrderOfTime: kubectl shows Events in the order of their names.
func TestNamesAreInTheOrderOfTime(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		reasons := []string{"Scheduled", "Pulling", "Pulled", "Created", "Started", "Unhealthy", "Killing", "Stopped"}
		for i, reason := range reasons {
			if i == 4 { // a restart in the middle
				pass(time.Millisecond)
				r.end(time.Second)
				r = newRig(t, r.server, continuing)
			}
			r.rec.Eventf(podRef("a"), nil, corev1.EventTypeNormal, reason, "A", "")
			if i%2 == 0 { // the others come in the same nanosecond
				pass(time.Millisecond)
			}
		}
		synctest.Wait()
		all := about(r.server.Events(), "a")
		slices.SortFunc(all, func(x, y eventsv1.Event) int { return strings.Compare(x.Name, y.Name) })
		var got []string
		for _, e := range all {
			got = append(got, e.Reason)
		}
		if !slices.Equal(got, reasons) {
			t.Errorf("by name they come as %v", got)
		}
	})
}

// TestTwoObjectsOfASeries: the end of an object waits while its series has begun another one. After
// a kill both are ended.
func TestTwoObjectsOfASeries(t *testing.T) {
	for range 4 { // a map has no order
		first := ""
		fault := serially(func(ctx context.Context, c eventstest.Call) error {
			if first == "" && strings.HasPrefix(c.Name, "a.") {
				first = c.Name
			}
			if c.Name == first && c.Body != "{}" {
				return errReset
			}
			return nil
		})
		play(t, `start ttl=3h a×2 1s kill 45m start fault a×2 1s [a: Ongoing ×2, Ongoing ×2]
			b×2 15s c×2 15s d×2 15s e×2 15s f×2 15s kill mended start 15m [a: Unknown ≥2, Unknown ≥2]`, fault, continuing)
	}
}

// TestRosterOfNothing: a roster that names no series is not renewed.
func TestRosterOfNothing(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		r.pod("a", 3)
		pass(10 * time.Minute)
		before, _ := r.server.Count()
		pass(24 * time.Hour)
		after, _ := r.server.Count()
		if after > before {
			t.Errorf("%d calls in a day without events", after-before)
		}
	})
}

// TestRosterOfManySeries: the whole and its changes never are more than the server takes, however
// long the names are.
func TestRosterOfManySeries(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		loops := func(from, to int) {
			for i := range to - from {
				r.pod(fmt.Sprintf("web-%.20x", sha256.Sum256([]byte(strconv.Itoa(from+i)))), 2)
			}
			pass(10 * time.Second)
		}
		loops(0, 4000)
		for i := range fewer(15, 5) {
			loops(4000+300*i, 4300+300*i)
		}
		for _, c := range r.server.Calls() {
			if c.Err != nil && !apierrors.IsNotFound(c.Err) { // there is no roster at first
				t.Fatal(c.Verb, c.Name, c.Err)
			}
		}
		before := r.Stats().Calls["roster"]
		loops(9000, 9001)
		if got := r.Stats().Calls["roster"]; got != before+1 {
			t.Errorf("%d calls of the roster after a change", got-before)
		}
	})
}

// TestEvictedSeriesGoesOn: an evicted series that goes on is in the roster again, also where both
// come in one write; when the process is killed it does not stay Ongoing.
func TestEvictedSeriesGoesOn(t *testing.T) {
	for _, pause := range []time.Duration{30 * time.Second, 0} {
		synctest.Test(t, func(t *testing.T) {
			server := eventstest.NewServer()
			small := func(o *Options) { continuing(o); o.MaxSeries = 25 }
			r := newRig(t, server, small)
			others := func() {
				for i := range 24 {
					r.pod(fmt.Sprint("loop", i), 1)
				}
			}
			r.pod("a", 3)
			others()
			others()
			pass(20 * time.Second)
			others()
			r.pods(3, 2) // push a out
			pass(pause)
			synctest.Wait()
			r.wantAbout("a", "Unknown ×3")
			for range 40 { // a goes on for ten minutes
				r.pod("a", 1)
				pass(15 * time.Second)
			}
			if e := about(server.Events(), "a"); len(e) != 1 || e[0].Annotations[AnnotationState] != stateOngoing {
				t.Fatalf("before the kill: %s", brief(e))
			}
			r.kill()
			newRig(t, server, small)
			pass(55 * time.Minute) // nothing expires
			for _, e := range server.Events() {
				if e.Annotations[AnnotationState] == stateOngoing {
					t.Errorf("%s is %s until the server forgets it", e.Regarding.Name, told(&e))
				}
			}
		})
	}
}

// TestRemovedAndAddedInOneWrite: a series that was evicted and goes on is in the roster, whatever a
// single write says of it.
func TestRemovedAndAddedInOneWrite(t *testing.T) {
	now := time.Now()
	s := newSeries(&seriesKey{}, 0, source{}, &content{namespace: "ns"})
	s.begins(begin(now), eventName("a", &s.id, now))
	all := newTable()
	all.touch(s)
	r := newRoster(0, source{controller: controller})
	r.wrote(&rosterWrite{whole: true, tag: "tag", size: 1000}, &eventsv1.Event{})
	r.drop(s.path(), now)
	r.add(s, now)
	w := r.write(false, nil)
	e := r.event("ns", now)
	w.apply(e)
	changes := 0
	if lines, _ := readRoster(e, &changes); len(lines) != 1 || w.whole {
		t.Errorf("the roster has %v, whole: %v", lines, w.whole)
	}
}

// TestRosterThatCannotBeWritten: while the roster is refused, and there are new series without end,
// what waits for it is bounded. Afterwards it has all that go on.
func TestRosterThatCannotBeWritten(t *testing.T) {
	bubble(t, func(o *Options) { continuing(o); o.MaxSeries = 100 }, func(t *testing.T, r *rig) {
		elsewhere := func(c eventstest.Call) bool { return c.Namespace != "ns" }
		r.server.SetFault(where(elsewhere, always(forbidden("x"))))
		for i := range fewer(90, 6) {
			for j := range 100 {
				r.pod(fmt.Sprint("p", 100*i+j), 2)
			}
			pass(time.Second)
		}
		roster := r.core.rosters[0]
		if n := len(roster.added) + len(roster.removed); n > maxWaiting {
			t.Errorf("%d changes wait", n)
		}
		r.server.SetFault(nil)
		pass(time.Hour)
		r.pod("newest", 2)
		pass(time.Minute)
		r.kill()
		newRig(t, r.server, continuing).pod("newest", 1)
		pass(time.Second)
		r.wantAbout("newest", "Ongoing ≥3")
	})
}

// TestLateRosters: the server carries out writes of the roster after they were given up. The next
// process finds what the roster said last: it ends what a killed one has left, and leaves alone
// what that one had ended.
func TestLateRosters(t *testing.T) {
	roster := func(c eventstest.Call) bool { return strings.Contains(c.Name, ".roster-") && c.Body != "{}" }
	for _, after := range []time.Duration{time.Millisecond, 15 * time.Second, 32 * time.Second, 45 * time.Second, 10 * time.Minute} {
		for late := range 4 {
			for _, first := range []string{"", "z×2 15s "} { // the first one is a create, or a patch
				calls := 0
				fault := where(roster, serially(func(context.Context, eventstest.Call) error {
					calls++
					if calls > late {
						return nil
					}
					return &eventstest.LateError{After: after, Err: errReset}
				}))
				says := func(what string) (all string) {
					for name := range strings.FieldsSeq("a b c d e") {
						all += fmt.Sprintf("[%s: %s] ", name, what)
					}
					return all
				}
				emits := "start " + first + "fault a×2 12s b×2 12s c×2 12s d×2 12s e×2 "
				for name, history := range map[string]string{
					"going on": emits + "12s kill start 15m " + says("Unknown ≥2"),
					"ended":    emits + "11m kill start 15m " + says("Finished ×2"),
					"in order": emits + "12s end start 15m " + says("Finished ×2"),
				} {
					t.Run(fmt.Sprintf("%s, %v, %q, %d calls", name, after, first, late), func(t *testing.T) {
						calls = 0
						play(t, history, fault, continuing)
					})
				}
			}
		}
	}
}

// rosterTrouble fails as many reads of the roster as given, and writes by their number.
func rosterTrouble(reads int, writes map[int]error) eventstest.Fault {
	read, written := 0, 0
	return serially(func(_ context.Context, c eventstest.Call) error {
		switch {
		case !strings.Contains(c.Name, ".roster-"):
			return nil
		case c.Body != "{}":
			written++
			return writes[written]
		case read < reads:
			read++
			return status(503, metav1.StatusReasonServiceUnavailable, 0)
		}
		return nil
	})
}

// TestLateRosterAfterFailedReads: also where reads of the roster have failed for minutes, a write
// that is carried out late does not bring back what has ended.
func TestLateRosterAfterFailedReads(t *testing.T) {
	fault := rosterTrouble(maxFaults, map[int]error{
		1: &eventstest.LateError{After: time.Millisecond, Err: errReset}, // the next meets another version
		3: &eventstest.LateError{After: 10 * time.Minute, Err: errReset},
	})
	play(t, `start z×2 15s fault a×2 20m [a: Finished ×2] [z: Finished ×2] kill
		start 15m [a: Finished ×2] [z: Finished ×2]`, fault, continuing)
}

// TestConflictAfterFailedReads: one more conflict after reads that have failed for minutes is no
// reason to leave the roster alone for half an hour.
func TestConflictAfterFailedReads(t *testing.T) {
	conflict := apierrors.NewConflict(resource, "x", errors.New("the object has been modified"))
	fault := rosterTrouble(maxFaults, map[int]error{1: conflict, 2: conflict})
	play(t, `start z×2 15s fault a×2 5m a×1 4m kill start 15m [a: Unknown ≥3]`, fault, continuing)
}

// TestSteadyConflictOfTheRoster: a roster of which each patch meets another version is left alone
// for a while, and a shutdown says that it could not be written.
func TestSteadyConflictOfTheRoster(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		r.pod("a", 2)
		pass(15 * time.Second)
		patches := func(c eventstest.Call) bool { return strings.Contains(c.Name, ".roster-") && c.Body != "{}" }
		conflict := apierrors.NewConflict(resource, "x", errors.New("the object has been modified"))
		r.server.SetFault(where(patches, always(conflict)))
		r.pod("b", 2)
		pass(25 * time.Second)
		if n := r.Stats().Calls["roster"]; n > 4 {
			t.Errorf("%d writes of the roster in the first seconds", n)
		}
		pass(5 * time.Minute)
		if n := r.Stats().Calls["roster"]; n > maxFaults+3 {
			t.Errorf("%d writes of the roster in five minutes", n)
		}
		before := r.Stats().Calls["roster"]
		pass(25 * time.Minute)
		if n := r.Stats().Calls["roster"] - before; n > 1 {
			t.Errorf("%d writes of the roster in the minutes after", n)
		}
		r.pod("c", 2)
		pass(time.Minute)
		var left *UnsentError
		err := r.ShutdownWithContext(context.Background())
		if !errors.As(err, &left) || len(left.Rosters) != 1 || !errors.Is(err, conflict) {
			t.Errorf("left: %v", err)
		}
	})
}

// TestWholeAfterAnotherProcess: a whole replaces the changes that another process has written.
func TestWholeAfterAnotherProcess(t *testing.T) {
	now := time.Now()
	theirs := newRoster(0, source{controller: controller})
	e := theirs.event("ns", now)
	e.ResourceVersion = "7"
	e.Annotations = map[string]string{AnnotationRoster: "", changeKey(1): "", changeKey(2): "", changeKey(3): ""}
	r := newRoster(0, source{controller: controller})
	r.changes = 1
	r.becomeOvertaken()
	r.reread(e)
	own := r.event("ns", now)
	gone := r.write(false, func() []string { return nil }).apply(own)
	if len(gone) != 3 || own.ResourceVersion != "7" {
		t.Errorf("version %q is patched, and %v replaced", own.ResourceVersion, gone)
	}
}
