// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestThinned wants a list of many values to be bounded, even and from all of its time.
func TestThinned(t *testing.T) {
	l := thinned[int]{most: 8}
	for i := range 1000 {
		l.add(i)
		if len(l.list) > l.most {
			t.Fatalf("%d values are kept of %d, at most %d may be", len(l.list), i+1, l.most)
		}
	}
	for i, v := range l.list {
		if v != i*l.every {
			t.Errorf("value %d is %d, want every %dth: %v", i, v, l.every, l.list)
		}
	}
	if last := l.list[len(l.list)-1]; last < 1000-l.every {
		t.Errorf("the last value kept is %d of 1000, with every %dth kept", last, l.every)
	}
}

// TestWhy: why a stream ended is said once, in the runtime's words.
func TestWhy(t *testing.T) {
	answer := status.Error(codes.Unimplemented, "unknown method")
	for want, err := range map[string]error{
		"EOF, an orderly end by the runtime":   io.EOF,
		"closed by this PLEG, to open it anew": fmt.Errorf("cri: %w", context.Canceled),
		"Unimplemented: unknown method":        fmt.Errorf("cri: events on x: %w: %w", pleg.ErrNoEvents, answer),
		"Unavailable: gone":                    fmt.Errorf("cri: events on x: %w", status.Error(codes.Unavailable, "gone")),
		"a message that is no event":           fmt.Errorf("cri: %w of 3 bytes", cri.ErrMalformed),
		"no such file":                         errors.New("no such file"),
		"cri: " + cri.ErrMessageSize.Error() + ": raise it: rpc error: code = ResourceExhausted desc = large": fmt.Errorf(
			"cri: %w: raise it: %w", cri.ErrMessageSize, status.Error(codes.ResourceExhausted, "large")),
	} {
		if got := why(err); got != want {
			t.Errorf("why(%v) is %q, want %q", err, got, want)
		}
	}
}

// TestOwnFailures checks that a read fails and lasts by the runtime's doing alone: not for a time
// in which the watch did not run, nor by the end of its reader.
func TestOwnFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tap := newTap(false)
		began := time.Now()
		tap.beat()
		frozen := tap.begin(listCall, "")
		time.Sleep(30 * time.Second) // without a beat
		frozen(context.DeadlineExceeded)
		cut := tap.begin(readCall, "")
		time.Sleep(100 * time.Millisecond)
		cut(status.Error(codes.Unavailable, "EOF"))
		ends := []time.Time{began.Add(-time.Second), time.Now()}
		tap.beat()
		time.Sleep(500 * time.Millisecond)
		tap.beat()
		refused := tap.begin(readCall, "")
		time.Sleep(100 * time.Millisecond)
		refused(status.Error(codes.Unavailable, "refused"))
		if lists, reads := tap.ownFailures(listCall, ends), tap.ownFailures(readCall, ends); lists != 1 || reads != 1 {
			t.Errorf("%d lists and %d reads failed by the watch, want one of each", lists, reads)
		}
		if took := tap.took[listCall].Seconds().Max; took > 1 || len(tap.hung) > 0 {
			t.Errorf(
				"the list took %v s without the time in which the watch did not run; hung: %v",
				took,
				tap.hung,
			)
		}
	})
}

// TestFrozenList checks that a list under way when the watch did not run is not called hung.
func TestFrozenList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tap := newTap(false)
		tap.beat()
		tap.begin(listCall, "")
		time.Sleep(30 * time.Second)
		tap.take(time.Now())
		if len(tap.hung) > 0 {
			t.Errorf("hung while the watch did not run: %v", tap.hung)
		}
		for range 31 {
			time.Sleep(hangs / 30)
			tap.beat()
		}
		tap.take(time.Now())
		if tap.hung[listCall] != 1 {
			t.Errorf("hung: %v, want the list", tap.hung)
		}
	})
}

// TestFrozenOnce checks that a time in which the watch did not run is told once, also if a tick
// from its begin is taken after it.
func TestFrozenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tap := newTap(false)
		tap.beat()
		time.Sleep(50 * time.Millisecond)
		tick := time.Now()
		time.Sleep(6 * time.Second)
		tap.beat()
		told := len(tap.take(tick))
		time.Sleep(50 * time.Millisecond)
		tap.beat()
		told += len(tap.take(time.Now()))
		if told != 1 {
			t.Errorf("the freeze was told %d times, want once", told)
		}
	})
}
