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
		if err := r.Run(t.Context()); !errors.Is(err, ErrRunning) {
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
