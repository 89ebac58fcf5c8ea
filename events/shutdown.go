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

// UnsentError reports the events, and the rosters, not delivered by a shutdown.
type UnsentError struct {
	// Series is how many series the server was not told the end of.
	Series int
	// Occurrences is the number of emitted events unknown to the server.
	Occurrences int64
	// Rosters names the rosters without their last write, as namespace/name: the next process
	// continues none of the series that are in no roster, or in an older one only.
	Rosters []string
	// Cause is why: the end of the context, or the last answer of the server.
	Cause error
}

func (e *UnsentError) Error() string {
	rosters := ""
	if len(e.Rosters) > 0 {
		rosters = ", and the roster of those to be continued unwritten (" + strings.Join(e.Rosters, ", ") + ")"
	}
	return fmt.Sprintf("events: shutdown left %d series with %d occurrences unsent%s: %v", e.Series, e.Occurrences, rosters, e.Cause)
}

func (e *UnsentError) Unwrap() error { return e.Cause }

// StartRecordingToSinkWithContext is Run in a goroutine of its own, which ends with the context or
// with a shutdown.
func (b *Broadcaster) StartRecordingToSinkWithContext(ctx context.Context) error {
	ctx, err := b.start(ctx, stageOpen)
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

const shutdownTimeout = 5 * time.Second // of Shutdown

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
// every active series, with the state Unknown so a restart continues the series, and hands the
// roster over. Watchers receive the events emitted before. It returns when nothing of the
// broadcaster runs any more or the context ends; handlers and sinks late by then are not awaited. A
// server in trouble is tried once at once, then by the usual delays. Unsent events are dropped,
// counted as such, and returned as an *UnsentError, like a roster that could not be written. A
// second call waits for the first and returns nil.
func (b *Broadcaster) ShutdownWithContext(ctx context.Context) error {
	b.mu.Lock()
	if b.core.stage != stageOpen {
		b.mu.Unlock()
		await(ctx, b.shut)
		return nil
	}
	deadline, _ := ctx.Deadline()
	b.core.becomeStopped(deadline)
	brief, done := context.WithTimeout(ctx, b.core.callLimit(time.Now()))
	defer done()
	ended := b.runEnded
	cancel := b.cancel
	b.signal()
	b.mu.Unlock()
	defer close(b.shut)

	if ended != nil { // a hanging call does not use up the others' time
		context.AfterFunc(brief, func() { cancel(errCallTooLong) })
		await(ctx, ended)
		b.drain(ctx)
	}
	b.endWatchers(ctx)
	return b.abandon(ctx)
}

// drain sends what is left, once the recording has stopped.
func (b *Broadcaster) drain(ctx context.Context) {
	if ctx.Err() == nil {
		b.mu.Lock()
		b.core.suspend(time.Now())
		b.mu.Unlock()
	}
	draining, err := b.start(ctx, stageDraining)
	if err == nil { // else a sink does not heed its context
		go b.record(draining)
		await(ctx, b.runEnded)
	}
}

// endWatchers ends the watchers after what was emitted before.
func (b *Broadcaster) endWatchers(ctx context.Context) {
	b.mu.Lock()
	all := slices.Collect(maps.Keys(b.watchers))
	for _, w := range all {
		b.watchers.remove(w)
	}
	b.mu.Unlock()
	for _, w := range all {
		await(ctx, w.done)
	}
}

// abandon drops the rest and returns it as an error.
func (b *Broadcaster) abandon(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.core.stage == stageStopped { // there was no time to drain
		b.core.suspend(time.Now())
	}
	rosters := b.core.unwritten()
	left, occurrences := b.core.abandon()
	if left == 0 && occurrences == 0 && len(rosters) == 0 {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case b.runEnded == nil:
		cause = errNeverRan
	case b.core.lastErr != nil:
		cause = errors.Join(cause, b.core.lastErr)
	}
	return &UnsentError{
		Series:      left,
		Occurrences: occurrences,
		Rosters:     rosters,
		Cause:       cause,
	}
}

func await(ctx context.Context, ended <-chan struct{}) {
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
