// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

func TestShutdownFlushes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetFault(slowly(10 * time.Millisecond))
		r.pod("a", 2)
		pass(time.Second)
		r.pod("a", 98)
		for i := range 20 {
			r.pod(fmt.Sprint("p", i), i+1) // many are still in the queue
		}
		over, cancel := context.WithCancel(t.Context())
		cancel() // for a second Run that runs
		if err := r.Run(over); !errors.Is(err, ErrRunning) {
			t.Errorf("a second Run says %v", err)
		}
		var ends sync.WaitGroup
		for range 5 { // each waits for the first
			ends.Go(func() { r.end(time.Minute) })
		}
		ends.Wait()
		r.pod("late", 3)
		r.wantBooks(3, 0)
		if n := r.Stats().Dropped[DropShutdown]; n != 3 {
			t.Errorf("%d dropped after the shutdown", n)
		}
		if all := r.server.Events(); len(all) != 21 {
			t.Errorf("stored: %s", brief(all))
		}
		r.wantAbout("a", "Unknown ×100")
		r.wantAbout("p0", "single")
		r.wantAbout("p19", "Unknown ×20")
	})
}

func TestShutdownHonoursTheDeadline(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.pod("a", 5)
		pass(time.Minute) // how many calls these take is the scheduler's choice
		if n := r.Stats().Acknowledged; n != 5 {
			t.Fatalf("%d of 5 are acknowledged", n)
		}
		r.server.SetFault(during(time.Hour, errAway))
		r.pod("a", 7)
		r.pod("b", 1)
		pass(time.Second)
		begin := time.Now()
		err := r.shutdown(3 * time.Second)
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("it took %v", d)
		}
		var left *UnsentError
		if !errors.As(err, &left) || left.Series != 2 || left.Occurrences != 8 {
			t.Errorf("left: %+v", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errAway) {
			t.Errorf("the cause is %v", err)
		}
		if s := r.Stats(); s.Emitted != s.Acknowledged+s.Dropped[DropShutdown] {
			t.Errorf("books: %+v", s)
		}
	})
}

// TestShutdownWithOneCallThatHangs: the call gets a third of the time, and then comes after the
// others. The call may have been under way before the shutdown.
func TestShutdownWithOneCallThatHangs(t *testing.T) {
	for _, underWay := range []bool{true, false} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			hangs := where(func(c eventstest.Call) bool { return strings.HasPrefix(c.Name, "hangs") }, slowly(time.Hour))
			if underWay {
				r.server.SetFault(hangs)
			}
			r.pod("hangs", 2)
			synctest.Wait()
			if !underWay {
				r.server.SetFault(hangs)
				r.pod("hangs", 9)
			}
			r.pods(20, 2)
			var left *UnsentError
			if err := r.shutdown(5 * time.Second); !errors.As(err, &left) || left.Series != 1 {
				t.Errorf("left: %v; want the one that hangs", err)
			}
			for _, e := range r.server.Events() {
				if got := told(&e); got != "Unknown ×2" && e.Regarding.Name != "hangs" {
					t.Errorf("%s says %s", e.Name, got)
				}
			}
			if n := len(r.server.Events()); n < 20 {
				t.Errorf("%d events are stored", n)
			}
		})
	}
}

// TestShutdownWritesTheRoster: the last write of a roster is made again after a failure, and a
// shutdown that could not make it says so: the next process continues no series.
func TestShutdownWritesTheRoster(t *testing.T) {
	of := func(c eventstest.Call) bool { return strings.Contains(c.Name, ".roster-") }
	for _, tc := range []struct {
		name   string
		fault  func() eventstest.Fault
		limit  time.Duration // 0: none
		unsent bool
		then   string
	}{
		{"fails once", func() eventstest.Fault {
			failed := false
			return func(context.Context, eventstest.Call) error {
				if failed {
					return nil
				}
				failed = true
				return status(429, metav1.StatusReasonTooManyRequests, 1)
			}
		}, time.Minute, false, "Ongoing ×2"},
		{"nobody listens for a while", func() eventstest.Fault { return during(40*time.Second, errAway) }, 2 * time.Minute, false, "Ongoing ×2"},
		{"nobody listens, without a limit", func() eventstest.Fault { return always(errAway) }, 0, true, "single, single"},
		{"fails", func() eventstest.Fault { return always(status(503, metav1.StatusReasonServiceUnavailable, 0)) }, 5 * time.Minute, true, "single, single"},
		{"hangs", func() eventstest.Fault { return slowly(time.Hour) }, 0, true, "single, single"},
		{"is refused", func() eventstest.Fault { return always(forbidden("x")) }, time.Minute, false, "single, single"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, continuing, func(t *testing.T, r *rig) {
				r.pod("b", 2)
				pass(time.Minute)
				r.pod("a", 1)
				pass(time.Second)
				before := r.Stats().Calls["roster"]
				r.server.SetFault(where(of, tc.fault()))
				begin := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				if tc.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.limit)
				}
				defer cancel()
				err := r.ShutdownWithContext(ctx)
				var left *UnsentError
				if errors.As(err, &left) != tc.unsent || tc.unsent && (len(left.Rosters) != 1 || !strings.Contains(err.Error(), left.Rosters[0])) {
					t.Errorf("left: %v", err)
				}
				if n := r.Stats().Calls["roster"] - before; n > 12 || time.Since(begin) > 2*time.Minute {
					t.Errorf("%d writes of the roster in %v", n, time.Since(begin))
				}
				r.server.SetFault(nil)
				next := newRig(t, r.server, continuing)
				pass(time.Second)
				next.pod("a", 1)
				pass(time.Minute)
				next.wantAbout("a", tc.then)
			})
		})
	}
}

// TestShutdownOfARosterReadLate: the roster could not be read for long. Where the shutdown reads it
// and then cannot write it, that is tried three times, too.
func TestShutdownOfARosterReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idleRig(t, eventstest.NewServer(), continuing)
		roster := func(c eventstest.Call) bool { return strings.Contains(c.Name, ".roster-") }
		r.server.SetFault(where(roster, always(status(503, metav1.StatusReasonServiceUnavailable, 0))))
		r.start() // its first read of the roster fails already
		for range 60 {
			r.pod("a", 1)
			pass(time.Minute)
		}
		if n := r.core.rosters[0].attempts; n < 2*restoreTries {
			t.Errorf("%d reads have failed: the test proves nothing", n)
		}
		writes := func(c eventstest.Call) bool { return roster(c) && c.Body != "{}" }
		r.server.SetFault(where(writes, always(status(429, metav1.StatusReasonTooManyRequests, 0))))
		var left *UnsentError
		err := r.ShutdownWithContext(t.Context())
		if !errors.As(err, &left) || len(left.Rosters) != 1 {
			t.Errorf("left: %v", err)
		}
		if n := r.Stats().Calls["roster"]; n != restoreTries {
			t.Errorf("%d writes of the roster, want %d", n, restoreTries)
		}
	})
}

func TestShutdownWithAStuckSink(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.server.SetFault(func(context.Context, eventstest.Call) error { // deaf to its context
			<-release
			return nil
		})
		r.pod("a", 5)
		synctest.Wait()
		err := r.shutdown(2 * time.Second)
		var left *UnsentError
		if !errors.As(err, &left) || left.Occurrences != 5 {
			t.Errorf("left: %v", err)
		}
		close(release) // the late answer is not booked
		synctest.Wait()
		if s := r.Stats(); s.Unsent != 0 || s.Acknowledged != 0 || s.Dropped[DropShutdown] != 5 {
			t.Errorf("books: %+v", s)
		}
	})
}

// TestShutdownWithoutTime: a shutdown that has no time says how many series the server was not told
// the end of.
func TestShutdownWithoutTime(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.pods(5, 2)
		pass(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := r.ShutdownWithContext(ctx)
		synctest.Wait()
		var left *UnsentError
		if !errors.As(err, &left) || left.Series != 5 || left.Occurrences != 0 {
			t.Errorf("left: %v; want five series", err)
		}
		if s := r.Stats(); s.Series != 0 || s.Queue != 0 {
			t.Errorf("afterwards: %d series, %d with a call to make", s.Series, s.Queue)
		}
	})
}

// TestShutdownBesideACallOfTheRoster: such a call is no series.
func TestShutdownBesideACallOfTheRoster(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.pod("a", 2)
		pass(time.Minute)
		r.server.SetFault(where(func(c eventstest.Call) bool { return strings.Contains(c.Name, ".roster-") },
			func(context.Context, eventstest.Call) error { // deaf to its context
				<-release
				return nil
			}))
		r.pod("b", 2)
		pass(7 * time.Minute)
		var left *UnsentError
		if err := r.shutdown(2 * time.Second); !errors.As(err, &left) || left.Series != 0 || len(left.Rosters) != 1 {
			t.Errorf("left: %v; want the roster alone", err)
		}
		close(release)
		synctest.Wait()
	})
}

// TestShutdownAfterFailuresOfTheRoster: the last write of a roster is made again after a failure,
// whatever has failed before.
func TestShutdownAfterFailuresOfTheRoster(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		r.pod("a", 2)
		pass(time.Minute)
		of := func(c eventstest.Call) bool { return strings.Contains(c.Name, ".roster-") }
		busy := where(of, always(status(429, metav1.StatusReasonTooManyRequests, 0)))
		r.server.SetFault(busy)
		r.pod("b", 2)
		pass(2 * time.Minute)
		failed := false
		r.server.SetFault(func(ctx context.Context, c eventstest.Call) error {
			if failed || !of(c) {
				return nil
			}
			failed = true
			return busy(ctx, c)
		})
		r.end(time.Minute)
		if !failed {
			t.Error("the roster was not written")
		}
	})
}

// TestShutdownBesideAFirstReadThatHangs: events that did not wait for the first read of the roster
// do not wait for it in a shutdown.
func TestShutdownBesideAFirstReadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idleRig(t, eventstest.NewServer(), continuing)
		r.server.SetFault(where(func(c eventstest.Call) bool { return strings.Contains(c.Name, ".roster-") }, slowly(time.Hour)))
		r.start()
		r.pod("a", 2)
		pass(time.Minute)
		r.pod("a", 3)
		r.pod("b", 2)
		var left *UnsentError
		if err := r.shutdown(shutdownTimeout); !errors.As(err, &left) || left.Series != 0 || len(left.Rosters) != 1 {
			t.Errorf("left: %v; want the roster alone", err)
		}
		r.wantAbout("a", "Unknown ×5")
		r.wantAbout("b", "Unknown ×2")
	})
}

// TestRunWhileAShutdownDrains: who runs the recorder again whenever it ends takes the last writes
// from no shutdown.
func TestRunWhileAShutdownDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idleRig(t, eventstest.NewServer(), nil)
		r.mu.Lock()
		r.core.suspend(time.Now())
		r.mu.Unlock()
		if err := r.Run(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("Run says %v", err)
		}
		if err := r.StartRecordingToSinkWithContext(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("the start says %v", err)
		}
	})
}

func TestShutdownWithoutRecording(t *testing.T) {
	b := must(New(Options{Sink: eventstest.NewServer().Sink()}))(t)
	b.NewRecorder(nil, "c").Eventf(podRef("a"), nil, "Normal", "R", "A", "")
	var left *UnsentError
	if err := b.ShutdownWithContext(t.Context()); !errors.As(err, &left) || left.Series != 1 || left.Occurrences != 1 {
		t.Errorf("left: %v", err)
	}
	if err := b.ShutdownWithContext(t.Context()); err != nil {
		t.Errorf("the second one says %v", err)
	}
	if err := b.Run(t.Context()); !errors.Is(err, ErrShutdown) {
		t.Errorf("Run says %v", err)
	}
	if _, err := b.StartEventWatcher(func(runtime.Object) {}); !errors.Is(err, ErrShutdown) {
		t.Errorf("a watcher: %v", err)
	}
}
