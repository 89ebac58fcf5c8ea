// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// This file has what a call does before anything is sent: it waits for the own client.

// turn is a client's rate limiter. The wait for it is no part of the time for a recorder's call,
// and its error says that nothing was sent.
type turn struct{ flowcontrol.RateLimiter }

// Wait returns when the call may be sent, or an *unsentError.
func (t turn) Wait(ctx context.Context) error {
	if t.TryAccept() {
		return nil
	}
	var err error
	call, ok := ctx.(*callContext)
	if ok {
		err = call.outside(t.RateLimiter.Wait)
	} else {
		err = t.RateLimiter.Wait(ctx)
	}
	if err != nil {
		return &unsentError{err}
	}
	return nil
}

// unsentError is the error of a call of which nothing was sent.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return "nothing was sent: " + e.cause.Error() }

func (e *unsentError) Unwrap() error { return e.cause }

// unsent reports whether a call's error says that nothing was sent, for the rate limit of the own
// client. The text is that of client-go, for sinks of others.
func unsent(err error) bool {
	const text = "client rate limiter Wait returned an error: "
	return errors.As(err, new(*unsentError)) || err != nil && strings.Contains(err.Error(), text)
}

// callContext is the context of a writer's calls, one at a time. It ends with its parent, or when
// the time for a call is over, of which the time outside is no part.
type callContext struct {
	context.Context
	parent context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration
	timer  *time.Timer // ends the context

	mu       sync.Mutex // guards deadline
	deadline time.Time
}

func newCallContext(parent context.Context, deadline time.Time, limit time.Duration) *callContext {
	c := &callContext{parent: parent, deadline: deadline, limit: limit}
	c.Context, c.cancel = context.WithCancelCause(parent)
	c.timer = time.AfterFunc(max(1, time.Until(deadline)), func() { c.cancel(context.DeadlineExceeded) })
	return c
}

// Err is context.DeadlineExceeded also when the time for the call is over.
func (c *callContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// Deadline is when the time for the call is over, or earlier the parent's. It moves with a time
// outside.
func (c *callContext) Deadline() (deadline time.Time, ok bool) {
	deadline = c.end()
	of, ok := c.parent.Deadline()
	if ok && of.Before(deadline) {
		deadline = of
	}
	return deadline, true
}

// end returns when the time for the call is over, the zero time for no context.
func (c *callContext) end() time.Time {
	if c == nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline
}

// outside waits in the parent's time. The call has all of its own from then on.
func (c *callContext) outside(wait func(context.Context) error) error {
	if !c.timer.Stop() {
		<-c.Done()
		return c.Err()
	}
	err := wait(c.parent)
	c.mu.Lock()
	c.deadline = time.Now().Add(c.limit)
	c.mu.Unlock()
	c.timer.Reset(max(1, c.limit))
	return err
}

// release ends the context.
func (c *callContext) release() {
	c.timer.Stop()
	c.cancel(context.Canceled)
}
