// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

func forbidden(name string) error {
	return apierrors.NewForbidden(resource, name, errors.New("no relationship found"))
}

// stored returns the sum of the counts of a server's series, and how many of them say Ongoing.
func stored(server *eventstest.Server) (count int64, ongoing int) {
	for _, e := range server.Events() {
		switch {
		case e.Annotations[AnnotationRoster] != "":
			continue
		case e.Series == nil:
			count += int64(max(e.DeprecatedCount, 1))
		default:
			count += int64(e.Series.Count)
		}
		if e.Annotations[AnnotationState] == stateOngoing {
			ongoing++
		}
	}
	return count, ongoing
}

// TestRefusedPatchGoesOnCounting: a stored series is tried again with the heartbeat or the end.
func TestRefusedPatchGoesOnCounting(t *testing.T) {
	for _, minutes := range []int{3, 10} { // of refusal: the heartbeat after it is the next try
		refused, allowed := strings.Repeat("a×1 1s ", 60*minutes), strings.Repeat("a×1 1s ", 60*(40-minutes))
		play(t, "start a×1 1s fault "+refused+"[calls: create patch!] mended "+allowed+"6m [a: Finished ×2401]",
			always(apierrors.NewBadRequest("no")), nil)
	}
}

// TestRefusedPatchOfASlowLoop: a refused patch is not repeated with each occurrence, and an end
// that the server refuses is not counted as told.
func TestRefusedPatchOfASlowLoop(t *testing.T) {
	refused := strings.Repeat("a×1 15s ", 4*25)
	play(t, "start a×1 15s fault "+refused+"[calls: create patch!] mended "+refused+"6m [a: Finished ×201]",
		always(apierrors.NewBadRequest("no")), nil)
	bubble(t, nil, func(t *testing.T, r *rig) {
		for range 2 { // one by one: of three at once the loop may take two, and the third waits
			r.pod("p", 1)
			r.pod("told", 1)
			pass(time.Second)
		}
		no := always(apierrors.NewBadRequest("no"))
		r.server.SetFault(where(func(c eventstest.Call) bool { return strings.HasPrefix(c.Name, "p.") }, no))
		pass(10 * time.Minute)
		r.wantAbout("p", "Ongoing ×2")
		r.wantAbout("told", "Finished ×2")
		if n := r.Stats().Transitions["finished"]; n != 1 {
			t.Errorf("finished is %d, of one that was told", n)
		}
	})
}

// TestForbiddenElsewhere: a namespace not covered, or no longer covered, by the role slows no
// other.
func TestForbiddenElsewhere(t *testing.T) {
	for _, from := range []time.Duration{0, time.Minute} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			begin := time.Now()
			r.server.SetFault(where(func(c eventstest.Call) bool { return c.Namespace == "ns" && time.Since(begin) >= from }, always(forbidden("x"))))
			for i := range 600 {
				r.pod(fmt.Sprint("p", i), 1)
				r.rec.Eventf(&corev1.ObjectReference{Kind: "Node", Name: fmt.Sprint("n", i)}, nil, "Normal", "R", "A", "")
				pass(time.Second)
				if n := r.Stats().Acknowledged; n < int64(i+1) {
					t.Fatalf("%v: event %d of the other namespace is not there at once", from, i)
				}
			}
			pass(10 * time.Minute)
			r.wantBooks(600-int64(from/time.Second), 0)
		})
	}
}

// TestSeriesBehindAGateAreNotScanned: calls of other namespaces do not pass through the series that
// wait for a refused namespace.
func TestSeriesBehindAGateAreNotScanned(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.pod("first", 1)
		synctest.Wait()
		r.server.SetFault(where(func(c eventstest.Call) bool { return c.Namespace == "ns" }, always(forbidden("x"))))
		r.pods(1000, 1)
		synctest.Wait()
		r.rec.Eventf(&corev1.ObjectReference{Kind: "Node", Name: "n"}, nil, "Normal", "R", "A", "")
		synctest.Wait()
		if n := r.Stats().Queue; n != 1000 {
			t.Errorf("%d series have a call to make", n)
		}
		r.mu.Lock()
		if n := r.core.queue.ready.Len(); n > 0 {
			t.Errorf("%d lanes are looked at for each call", n)
		}
		r.mu.Unlock()
		r.server.SetFault(nil)
		pass(time.Minute)
		r.wantStored(1002)
		r.wantBooks(0, 0)
	})
}

// TestRestoreThatFails: events go out soon even if the calls for an earlier process's series fail.
func TestRestoreThatFails(t *testing.T) {
	for name, fault := range map[string]eventstest.Fault{
		"hangs":   slowly(time.Hour),
		"500":     always(status(500, metav1.StatusReasonInternalError, 0)),
		"503":     always(status(503, metav1.StatusReasonServiceUnavailable, 0)),
		"429":     always(status(429, metav1.StatusReasonTooManyRequests, 0)),
		"garbage": always(errors.New("couldn't get version/kind")),
		"403":     always(forbidden("roster")),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, continuing, func(t *testing.T, r *rig) {
				r.pod("old", 3)
				pass(time.Second)
				r.end(time.Second)
				r.server.SetFault(where(func(c eventstest.Call) bool { return c.Verb == eventstest.Patch && c.Body == "{}" }, fault))
				next := newRig(t, r.server, continuing)
				next.pod("new", 1)
				pass(25 * time.Second)
				next.wantAbout("new", "single")
				before, _ := r.server.Count()
				pass(time.Hour)
				if all, _ := r.server.Count(); all-before > 60 {
					t.Errorf("%d calls in the hour after", all-before)
				}
				next.wantBooks(0, 0)
			})
		})
	}
}

// TestTroubleOfAllRosters: where the namespace of the rosters is in trouble, the events of other
// namespaces do not wait for it, however many recorders a process has.
func TestTroubleOfAllRosters(t *testing.T) {
	elsewhere := func(c eventstest.Call) bool { return c.Namespace != "ns" }
	for _, trouble := range underRace(localTroubles) {
		for _, sources := range underRace([]int{1, 2, 5, 40}) {
			bubble(t, continuing, func(t *testing.T, r *rig) {
				r.server.SetFault(where(elsewhere, trouble.fault))
				for i := range sources {
					r.rec = r.NewSeriesRecorder(nil, fmt.Sprint("evented-pleg.dev/source-", i))
					r.pod("a", 1)
				}
				pass(25 * time.Second)
				if n := len(about(r.server.Events(), "a")); n != sources {
					t.Errorf("%s: the events of %d of %d sources are stored after 25 s", trouble.name, n, sources)
				}
				calls, _ := r.server.Count()
				pass(time.Hour)
				if all, _ := r.server.Count(); all > calls+150 {
					t.Errorf("%s: %d calls in an hour", trouble.name, all-calls)
				}
				r.server.SetFault(nil)
				pass(6 * time.Minute)
				if s := r.Stats(); s.Closed["namespace"]+s.Closed["object"] > 0 {
					t.Errorf("%s: closed after the trouble: %v", trouble.name, s.Closed)
				}
			})
		}
	}
}

// TestTwoProcesses: during a rolling restart, two processes share an instance for a while.
func TestTwoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		told, highest := int64(0), map[string]int32{}
		work := func(seconds int, rigs ...*rig) {
			for range seconds {
				for _, r := range rigs {
					r.pods(4, 1)
					told += 4
				}
				pass(time.Second)
				for _, e := range server.Events() {
					if e.Series != nil && e.Series.Count < highest[e.Name] {
						t.Fatalf("the count of %s goes back from %d to %d", e.Name, highest[e.Name], e.Series.Count)
					} else if e.Series != nil {
						highest[e.Name] = e.Series.Count
					}
				}
			}
		}
		older := newRig(t, server, continuing)
		work(120, older)
		calls, failed := server.Count()
		if failed != 1 { // nobody had left a roster
			t.Errorf("%d of %d calls failed in the normal case", failed, calls)
		}
		newer := newRig(t, server, continuing)
		work(300, older, newer)
		older.end(time.Minute)
		work(60, newer)
		pass(7 * time.Minute)
		count, ongoing := stored(server)
		if n := len(server.Events()); count != told || ongoing > 0 || n != 5 {
			t.Errorf("told %d, stored %d in %d objects, %d of them Ongoing: %s", told, count, n, ongoing, brief(server.Events()))
		}
		older.wantBooks(0, 0)
		newer.wantBooks(0, 0)
	})
}

// TestReadBeforeTheNextPatch: once another process's write was found, objects not seen since are
// read before a patch, instead of after a 409.
func TestReadBeforeTheNextPatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		one := func(o *Options) { o.NoRoster, o.Writers = false, 1 }
		const n = 20
		emit := func(r *rig, times int) {
			r.pods(n, times)
			pass(2 * time.Second)
		}
		older := newRig(t, server, one)
		emit(older, 2)
		newer := newRig(t, server, one)
		emit(newer, 1)
		emit(older, 1)
		older.end(time.Minute)
		if got := older.Stats().Retries["Conflict"]; got != 1 {
			t.Errorf("%d answers of 409 for %d objects of another process", got, n)
		}
		newer.wantAbout("p0", "Unknown ≥4")
	})
}

// TestForbiddenObject: a policy denies some objects of a namespace (403) where others are stored.
// Those are given up, others are not delayed, and a role that is replaced meanwhile loses nothing.
func TestForbiddenObject(t *testing.T) {
	for _, denied := range []int{1, 40} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.pod("good", 1)
			pass(time.Second)
			calls := 0
			emitted := map[string]time.Time{}
			var late time.Duration // of those after the first seconds: the first 403 may be the role's
			r.server.SetFault(serially(func(_ context.Context, c eventstest.Call) error {
				if strings.HasPrefix(c.Name, "bad") {
					calls++
					return forbidden(c.Name)
				}
				name, _, _ := strings.Cut(c.Name, ".")
				if at, ok := emitted[name]; ok {
					late = max(late, time.Since(at))
				}
				return nil
			}))
			for i := range 10 * 60 {
				if i < denied {
					r.pod(fmt.Sprint("bad", i), 1)
				}
				name := fmt.Sprint("new", i)
				if i > 20 {
					emitted[name] = time.Now()
				}
				r.pod(name, 1)
				pass(time.Second)
			}
			pass(10 * time.Minute) // the last pauses of an object are of five minutes
			r.server.SetFault(nil)
			pass(2 * time.Second)
			r.wantStored(1 + 600)
			if calls > 40*denied || late > 2*time.Second {
				t.Errorf("%d calls for %d denied objects, another one is stored %v late", calls, denied, late)
			}
			r.wantBooks(int64(denied), 0)
			r.server.SetFault(during(4*time.Minute, forbidden("x")))
			r.pod("during", 1)
			pass(5 * time.Minute)
			r.wantAbout("during", "single")
		})
	}
}

// TestRolesOfManyNamespaces: a 403 after a success is not believed at once, however many namespaces
// had events before.
func TestRolesOfManyNamespaces(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxSeries = 10 }, func(t *testing.T, r *rig) {
		for i := range 40 {
			r.in(fmt.Sprint("old-", i), "o")
			pass(time.Minute)
		}
		r.in("new", "a")
		pass(time.Second)
		r.server.SetFault(during(30*time.Second, forbidden("x")))
		r.in("new", "b")
		pass(2 * time.Minute)
		r.wantAbout("b", "single")
		r.wantBooks(0, 0)
		if n := len(r.core.granted); n > 20 {
			t.Errorf("%d roles are remembered", n)
		}
	})
}

// TestClockAhead: another process with the instance, whose clock is an hour ahead, keeps no series
// from its end.
func TestClockAhead(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.pod("p", 3)
		pass(time.Minute) // the first calls may have left the third for the next write
		r.wantTold("Ongoing ×3")
		e := r.one()
		ahead := metav1.NewMicroTime(time.Now().Add(time.Hour))
		body := must(json.Marshal(map[string]any{"series": eventsv1.EventSeries{Count: 5, LastObservedTime: ahead}}))(t)
		_, err := r.server.Sink().Patch(t.Context(), &e, body)
		noError(t, err)
		r.pod("p", 1)
		pass(20 * time.Minute)
		r.wantTold("Finished ×6")
	})
}

// TestUnsendableNamespace: client-go makes no call with such a namespace, with an error that looks
// like a broken connection. The event is rejected, and others are not delayed.
func TestUnsendableNamespace(t *testing.T) {
	inArena(t, rivals[0], func(a *arena) {
		for i, bad := range []string{"a/b", "..", ".", "a%b", "c/d"} {
			a.emit(podIn(bad, fmt.Sprint("bad-", i)), "BackOff", "back-off")
		}
		pass(time.Second)
		a.about("good", "g")
		pass(time.Second)
		if s := a.result(func(string) bool { return true }); s.lost != 0 || s.worst > 0 || s.calls > 2 {
			t.Errorf("%d lost, %v late, %d calls", s.lost, s.worst, s.calls)
		}
	})
}

// TestSteadyConflict: a server that never takes a patch is left alone.
func TestSteadyConflict(t *testing.T) {
	for _, body := range []string{"", "series"} { // of all patches, or of those that write
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.server.SetFault(where(func(c eventstest.Call) bool { return c.Verb == eventstest.Patch && strings.Contains(c.Body, body) }, always(apierrors.NewConflict(resource, "x", errors.New("modified")))))
			for range 60 {
				r.pods(500, 1)
				pass(10 * time.Second)
			}
			if all, _ := r.server.Count(); all > 500+300 {
				t.Errorf("%d calls in 10 minutes for 500 series: %v", all, r.Stats().Retries)
			}
			r.server.SetFault(nil)
			pass(20 * time.Minute)
			if count, ongoing := stored(r.server); count != 500*60 || ongoing > 0 {
				t.Errorf("%d of %d are stored, %d are Ongoing", count, 500*60, ongoing)
			}
			r.wantBooks(0, 0)
		})
	}
}

// TestSteadyConflictOfOneObject: one object whose writes always conflict, or its reads too, delays
// no write of others in its namespace.
func TestSteadyConflictOfOneObject(t *testing.T) {
	for _, body := range []string{"series", ""} { // of the patches that write, or of all
		bubble(t, nil, func(t *testing.T, r *rig) {
			bad := func(c eventstest.Call) bool {
				return c.Verb == eventstest.Patch && strings.HasPrefix(c.Name, "bad.") && strings.Contains(c.Body, body)
			}
			emitted := map[string]time.Time{}
			var late time.Duration
			conflict := always(apierrors.NewConflict(resource, "x", errors.New("modified")))
			r.server.SetFault(serially(func(ctx context.Context, c eventstest.Call) error {
				name, _, _ := strings.Cut(c.Name, ".")
				at, ok := emitted[name]
				switch {
				case bad(c):
					return conflict(ctx, c)
				case ok && c.Verb == eventstest.Patch:
					late = max(late, time.Since(at))
					delete(emitted, name)
				}
				return nil
			}))
			for i := range 200 {
				name := fmt.Sprint("good", i)
				r.pod("bad", 1)
				r.pod(name, 1)
				pass(5 * time.Second)
				emitted[name] = time.Now()
				r.pod(name, 1)
				pass(5 * time.Second)
			}
			if late > time.Second || len(emitted) > 0 {
				t.Errorf("patches of %q: the second occurrence of another object is stored up to %v late, %d never", body, late, len(emitted))
			}
		})
	}
}

// TestThroughputAfterARestart: 4,000 series at 20 ms a call are kept, and do not delay new events.
func TestThroughputAfterARestart(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		n := fewer(4000, 8)
		name := func(i int) string { // as the pods of a Deployment have, with a random part
			return fmt.Sprintf("some-deployment-%08x-%05x", uint32(i/10)*2654435761, uint32(i)*2246822519>>12)
		}
		for i := range n {
			r.pod(name(i), 2)
		}
		pass(time.Minute)
		r.end(10 * time.Minute)
		r.server.SetFault(slowly(20 * time.Millisecond))
		next := newRig(t, r.server, continuing)
		begin := time.Now()
		next.pod("new", 1)
		for i := range n {
			next.pod(name(i), 1)
		}
		pass(100 * time.Millisecond)
		next.wantAbout("new", "single")
		for next.Stats().Queue > 0 {
			pass(time.Second)
		}
		if d := time.Since(begin); d > time.Duration(n)*2*20*time.Millisecond/4+2*time.Second {
			t.Errorf("it took %v", d)
		}
		if count, _ := stored(r.server); count != int64(3*n+1) || len(r.server.Events()) != n+2 {
			t.Errorf("%d occurrences in %d objects", count, len(r.server.Events()))
		}
		next.wantBooks(0, 0)
	})
}

// TestTableFull: a table full of stored series without a flush has its own drop reason.
func TestTableFull(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxSeries, o.MaxQueue = 10, 100 }, func(t *testing.T, r *rig) {
		r.server.SetFault(where(func(c eventstest.Call) bool { return c.Verb == eventstest.Patch }, always(status(409, metav1.StatusReasonConflict, 0))))
		for i := range 100 {
			r.pod(fmt.Sprint("p", i), 1)
			pass(2 * time.Second)
			r.pod(fmt.Sprint("p", i), 1)
		}
		if d := r.Stats().Dropped; d[DropQueueFull] > 0 || d[DropTableFull] == 0 {
			t.Errorf("dropped: %v", d)
		}
	})
}

// TestInvalidController: a controller name refused by the server is logged once, and counted.
func TestInvalidController(t *testing.T) {
	r := idleRig(t, eventstest.NewServer(), nil)
	bad := r.NewSeriesRecorder(nil, "no name")
	for i := range 3 {
		bad.Eventf(podRef(strconv.Itoa(i)), nil, "Normal", "R", "A", "")
	}
	if d := r.Stats().Dropped[DropInvalid]; d != 3 {
		t.Errorf("%d are dropped", d)
	}
}
