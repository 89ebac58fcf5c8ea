// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

var (
	// ErrRunning is returned when recording is started while already active.
	ErrRunning = errors.New("events: already recording to the sink")
	// ErrNoSink is returned when recording is started without Options.Sink.
	ErrNoSink = errors.New("events: there is no sink to record to: set Options.Sink")
	// ErrShutdown is returned by every start after a shutdown.
	ErrShutdown = errors.New("events: the broadcaster was shut down")
)

// UnsentError reports the events not delivered by a shutdown.
type UnsentError struct {
	// Series is how many series the server was not told the end of.
	Series int
	// Occurrences is the number of emitted events unknown to the server.
	Occurrences int64
	// Cause is why: the end of the context, or the last answer of the server.
	Cause error
}

func (e *UnsentError) Error() string {
	return fmt.Sprintf("events: shutdown left %d series with %d occurrences unsent: %v", e.Series, e.Occurrences, e.Cause)
}

func (e *UnsentError) Unwrap() error { return e.Cause }

// StartRecordingToSinkWithContext is Run in a goroutine of its own, which ends with the context or
// with a shutdown.
func (b *Broadcaster) StartRecordingToSinkWithContext(ctx context.Context) error {
	ctx, err := b.start(ctx)
	if err != nil {
		return err
	}
	go b.record(ctx)
	return nil
}

// StartRecordingToSink is StartRecordingToSinkWithContext with a channel for the end.
func (b *Broadcaster) StartRecordingToSink(stopCh <-chan struct{}) {
	if err := b.StartRecordingToSinkWithContext(wait.ContextForChannel(stopCh)); err != nil {
		klog.Background().Error(err, "Events are not recorded")
	}
}

// Shutdown is ShutdownWithContext with a five-second limit; unsent events are logged.
func (b *Broadcaster) Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := b.ShutdownWithContext(ctx); err != nil {
		klog.Background().Error(err, "Events were lost")
	}
}

var (
	errCallTooLong = errors.New("the call had its share of the time for the shutdown")
	errNeverRan    = errors.New("recording to the sink was never started")
)

// ShutdownWithContext takes no more events. It sends the waiting writes and the final count of
// every active series, with the state Unknown so a restart continues the series. Watchers receive
// the events emitted before. It returns when nothing of the broadcaster runs any more or the
// context ends; handlers and sinks late by then are not awaited. A server in trouble is tried once
// at once, then by the usual delays. Unsent events are dropped, counted as such, and returned as an
// *UnsentError. A second call waits for the first and returns nil.
func (b *Broadcaster) ShutdownWithContext(ctx context.Context) error {
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		await(ctx, b.shut)
		return nil
	}
	b.stopped = true
	ended, cancel := b.runEnded, b.cancel
	b.signal()
	b.mu.Unlock()
	defer close(b.shut)

	if ended != nil {
		brief, done := context.WithTimeout(ctx, b.share(ctx)) // a hanging call does not use up the others' time
		context.AfterFunc(brief, func() { cancel(errCallTooLong) })
		await(ctx, ended)
		done()
		if ctx.Err() == nil {
			b.suspend(ctx, time.Now())
		}
		if ctx, err := b.start(ctx); err == nil { // else a sink does not heed its context
			go b.record(ctx)
			await(ctx, b.runEnded)
		}
	}
	b.mu.Lock()
	watchers := slices.Collect(maps.Keys(b.watchers))
	for _, w := range watchers {
		b.removeWatcher(w)
	}
	b.mu.Unlock()
	for _, w := range watchers {
		await(ctx, w.done)
	}
	return b.abandon(ctx)
}

func await(ctx context.Context, ended <-chan struct{}) {
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// share returns the longest time for a call out of the shutdown's remaining time.
func (b *Broadcaster) share(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return writeTimeout
	}
	return min(time.Until(end)/3, writeTimeout)
}

// suspend closes all series for their last writes. A restart may continue them.
func (b *Broadcaster) suspend(ctx context.Context, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = ctx
	b.release(now)
	clear(b.gates)
	clear(b.busy)
	for _, r := range b.rosters {
		r.next = now
	}
	var all []*series
	for _, l := range []*list.List{&b.tab.aged, &b.tab.queue} {
		for e := l.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*series))
		}
	}
	for _, s := range all {
		if s.st.end == going {
			s.st.end = suspended
			b.settle(s, now)
		}
		if s.trouble != nil && s.waits != nil { // failed series come after the others
			s.enqueue(&b.tab.queue, false)
		}
	}
}

func (b *Broadcaster) abandon(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandoned = true
	left := b.tab.queued() + b.inflight
	occurrences := b.count.Unsent
	b.count.drop(DropShutdown, occurrences)
	b.count.Unsent = 0
	b.tab = newTable()
	if left == 0 && occurrences == 0 {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case b.runEnded == nil:
		cause = errNeverRan
	case b.lastErr != nil && cause != nil:
		cause = errors.Join(cause, b.lastErr)
	}
	return &UnsentError{Series: left, Occurrences: occurrences, Cause: cause}
}
