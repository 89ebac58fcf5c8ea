// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
		<-ctx.Done()
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
