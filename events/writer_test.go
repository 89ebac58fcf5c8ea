// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// TestCallLimit: calls of a burst share a context; no call has more than its time, and none less by
// more than a thirty-second part.
func TestCallLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 32 * time.Second
		var l callLimit
		start := time.Now()
		contexts := map[context.Context]bool{}
		for _, c := range []struct {
			at, limit time.Duration
			contexts  int // so far
		}{
			{0, limit, 1},
			{time.Second, limit, 1},
			{time.Second + 1, limit, 2},
			{time.Second + 2, limit / 4, 3},               // the shared one would end too late
			{time.Second + 2, limit, 4},                   // too early
			{3 * time.Second, limit - 3*time.Second/2, 4}, // as at a shutdown
			{10 * time.Second, limit - 9*time.Second, 5},  // that would be too long
		} {
			time.Sleep(time.Until(start.Add(c.at)))
			ctx := l.context(t.Context(), time.Now(), c.limit)
			contexts[ctx] = true
			deadline, _ := ctx.Deadline()
			early := c.limit - time.Until(deadline)
			if early < 0 || early > c.limit/32 || ctx.Err() != nil {
				t.Errorf("after %v: %v less than %v, %v", c.at, early, c.limit, ctx.Err())
			}
			if len(contexts) != c.contexts {
				t.Errorf("after %v: %d contexts, want %d", c.at, len(contexts), c.contexts)
			}
		}
		last := l.ctx
		time.Sleep(limit)
		if !errors.Is(last.Err(), context.DeadlineExceeded) {
			t.Errorf("a call of more than its time goes on: %v", last.Err())
		}
		l.release()
		parent, cancel := context.WithCancel(t.Context())
		ctx := l.context(parent, time.Now(), limit)
		cancel()
		if ctx.Err() == nil {
			t.Error("a call goes on after the recording has ended")
		}
		again := l.context(t.Context(), time.Now(), limit)
		if again == ctx || again.Err() != nil {
			t.Error("a call has a context that has ended")
		}
		l.release()
		if again.Err() == nil {
			t.Error("a released context goes on")
		}
	})
}

// TestTimesOutOfOrder: whoever has waited for the lock comes with a time from before what others
// have booked meanwhile. Nothing that the core keeps goes back for that.
func TestTimesOutOfOrder(t *testing.T) {
	server := eventstest.NewServer()
	r := idleRig(t, server, func(o *Options) { o.Writers = 2 })
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	take := func(name string, d time.Duration) {
		e := emission{regarding: podRef(name), eventType: "Normal", reason: "R"}
		noError(t, r.rec.identify(&e))
		built, _ := r.rec.build(&e)
		r.core.take(&e, built, at(d))
	}
	next := func(d time.Duration) job {
		j, wait := r.core.next(at(d))
		if j.series == nil {
			t.Fatalf("no call for %v", wait)
		}
		return j
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	take("a", 0)
	take("a", 2*time.Second)
	take("a", time.Second)
	first := next(10 * time.Second)
	if last := first.call.last; !last.Equal(at(2 * time.Second)) {
		t.Errorf("the last occurrence is of %v, want 2s", last.Sub(start))
	}
	take("b", 3*time.Second)
	second := next(4 * time.Second)
	for _, f := range r.core.queue.flights {
		if f.began.Before(at(10 * time.Second)) {
			t.Errorf("a call began %v after the start, before one that had begun", f.began.Sub(start))
		}
	}
	if last := r.core.queue.lastStart; last.Before(at(10 * time.Second)) {
		t.Errorf("the latest call began %v after the start, want 10s", last.Sub(start))
	}
	r.core.answered(second, reply{stored: second.event, now: at(20 * time.Second)})
	r.core.answered(first, reply{stored: first.event, now: at(11 * time.Second)})
	take("a", 12*time.Second)
	if due := first.series.st.due; due.Before(at(20 * time.Second)) {
		t.Errorf("a write is due %v after the start, before the last answer", due.Sub(start))
	}
}

// TestACallHasItsTime: a writer that makes one slow call after the other gives each the same time.
func TestACallHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(slowly(writeTimeout * 2 / 3))
		r := idleRig(t, server, nil)
		r.pods(3, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go r.write(ctx) // alone: another writer would begin by its own time
		pass(3 * writeTimeout)
		cancel()
		r.wantVerbs("create create create")
	})
}

// TestPauseAfterASlowFailure: the pause after a failure begins with the answer, not with the call.
func TestPauseAfterASlowFailure(t *testing.T) {
	const takes = 20 * time.Second
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetFault(func(ctx context.Context, c eventstest.Call) error {
			_ = slowly(takes)(ctx, c)
			return status(500, metav1.StatusReasonInternalError, 0)
		})
		r.pod("a", 1)
		pass(2 * time.Minute)
		calls := r.server.Calls()
		if len(calls) < 2 {
			t.Fatalf("%d calls: the test proves nothing", len(calls))
		}
		for i := 1; i < len(calls); i++ {
			if d := calls[i].At.Sub(calls[i-1].At) - takes; d < r.opts.BackoffBase/4 {
				t.Errorf("try %d came %v after the failure", i, d)
			}
		}
	})
}

// TestCallsThatHangLeaveWriters: as many calls as there are writers hang, in one namespace. An
// event of another is written all the same.
func TestCallsThatHangLeaveWriters(t *testing.T) {
	const writers = 2
	few := func(o *Options) { o.Writers = writers }
	bubble(t, few, func(t *testing.T, r *rig) {
		bad := func(c eventstest.Call) bool { return c.Namespace == "bad" }
		r.server.SetFault(where(bad, slowly(time.Hour)))
		for i := range writers {
			r.in("bad", fmt.Sprint("b", i))
		}
		pass(slowAfter)
		r.in("good", "a")
		pass(slowAfter)
		r.wantAbout("a", "single")
	})
}

// TestACallThatTheEndBreaksOff: the end of the recording breaks a call off. That is no failure of
// the server: the next Run makes the call again at once.
func TestACallThatTheEndBreaksOff(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetFault(slowly(time.Hour))
		r.pod("a", 1)
		pass(time.Second)
		r.stop()
		synctest.Wait()
		if s := r.Stats(); len(s.Retries) > 0 || s.Closed["object"] > 0 {
			t.Errorf("retries %v, closed %v", s.Retries, s.Closed)
		}
		r.server.SetFault(nil)
		r.start()
		synctest.Wait()
		r.wantAbout("a", "single")
	})
}

// TestAWholeReplacesTheChanges: the last write of a roster takes the changes before it out of the
// object. Else the next process would apply them to it.
func TestAWholeReplacesTheChanges(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		kept := func() (keys []string) {
			for _, e := range r.server.Events() {
				if strings.Contains(e.Name, ".roster-") {
					keys = slices.Sorted(maps.Keys(e.Annotations))
				}
			}
			return keys
		}
		for _, name := range []string{"a", "b", "c"} {
			r.pod(name, 2)
			pass(rosterEvery + time.Second)
		}
		if keys := kept(); len(keys) < 3 {
			t.Errorf("the roster has %v: the test proves nothing", keys)
		}
		r.end(time.Second)
		if keys := kept(); !slices.Equal(keys, []string{AnnotationRoster}) {
			t.Errorf("in the end the roster has %v", keys)
		}
	})
}
