// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package deadmount

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestCallThatHangs is left after its time, and is the only one about its path until it ends.
func TestCallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/a-call-that-hangs"
		release := make(chan struct{})
		var calls atomic.Int32
		call := func() string {
			calls.Add(1)
			<-release
			return "late"
		}
		begun := time.Now()
		found, answered := Ask(path, call)
		if took := time.Since(begun); answered || found != "" || took < LookIn || took > 2*LookIn {
			t.Errorf("%q, answered %v, after %v", found, answered, took)
		}
		begun = time.Now()
		for range 3 {
			if _, answered := Ask(path, call); answered || time.Since(begun) > 0 {
				t.Errorf("the call is waited for again, for %v", time.Since(begun))
			}
		}
		if other, answered := Ask("/another-path", func() int { return 1 }); other != 1 || !answered {
			t.Errorf("another path: %d, answered %v", other, answered)
		}
		close(release)
		synctest.Wait()
		found, answered = Ask(path, call)
		if !answered || found != "late" || calls.Load() != 2 {
			t.Errorf("%q, answered %v, of %d calls", found, answered, calls.Load())
		}
	})
}

// TestCallsAtOnce: several calls about a path may be left, and all must end.
func TestCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/calls-at-once"
		first, second := make(chan struct{}), make(chan struct{})
		var both sync.WaitGroup
		for _, release := range []chan struct{}{first, second} {
			both.Go(func() {
				_, answered := Ask(path, func() bool { <-release; return true })
				if answered {
					t.Error("answered")
				}
			})
		}
		both.Wait()
		hangs := func() bool {
			_, answered := Ask(path, func() bool { return true })
			return !answered
		}
		close(first)
		synctest.Wait()
		if !hangs() {
			t.Error("one call hangs still, and another was begun")
		}
		close(second)
		synctest.Wait()
		if hangs() {
			t.Error("all calls have ended, and none is begun")
		}
	})
}

// TestDo: the error is the call's, or names the path, the time and the remedy.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/do"
		full := errors.New("full")
		if err := Do(time.Minute, path, func() error { return full }); err != full {
			t.Errorf("%v, want the error of the call", err)
		}
		release := make(chan struct{})
		defer close(release)
		begun := time.Now()
		err := Do(time.Minute, path, func() error { <-release; return nil })
		if took := time.Since(begun); took < time.Minute || took > 2*time.Minute {
			t.Errorf("left after %v", took)
		}
		unanswered, ok := errors.AsType[*Unanswered](err)
		if !ok || unanswered.Path != path || unanswered.Long != time.Minute {
			t.Fatalf("%v", err)
		}
		for _, part := range []string{path, "1m0s", "name another path", "umount -l"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
	})
}

// TestCheck: a path where nothing is gets an answer, too.
func TestCheck(t *testing.T) {
	if err := Check(filepath.Join(t.TempDir(), "nothing")); err != nil {
		t.Error(err)
	}
}

// TestDialThatHangs ends with its context; a connection that comes too late is closed.
func TestDialThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ours, theirs := net.Pipe()
		release := make(chan struct{})
		_, err := Dial(ctx, func(context.Context) (net.Conn, error) {
			<-release
			return ours, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(release)
		if _, err := theirs.Read(make([]byte, 1)); err == nil {
			t.Error("the late connection is open")
		}
	})
}
