// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// StartRecordingToSinkWithContext is Run in a goroutine of its own, which ends with the context or with a shutdown.
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

// Shutdown is ShutdownWithContext with Options.ShutdownTimeout; what was left is logged.
func (b *Broadcaster) Shutdown() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), b.opts.ShutdownTimeout, errShutdownTimeout)
	defer cancel()
	if err := b.ShutdownWithContext(ctx); err != nil {
		klog.Background().Error(err, "Events were lost")
	}
}

var (
	errShutdownTimeout = errors.New("the time for the shutdown was over")
	errNeverRan        = errors.New("recording to the sink was never started")
)

// ShutdownWithContext takes no more events, sends what waits and the final count of every series that goes on, with the state Unknown so that a
// restart continues it, lets the watchers see what was emitted, and returns when nothing of the broadcaster runs any more or the context ends. A handler
// or a sink that does not return in time is not waited for. A server in trouble is tried once more at once, then by the usual
// delays. What could not be sent is dropped, counted as such, and returned as an *UnsentError. A second call waits for the first and returns nil.
func (b *Broadcaster) ShutdownWithContext(ctx context.Context) error {
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		select {
		case <-b.shut:
		case <-ctx.Done():
		}
		return nil
	}
	b.stopped = true
	running, everRan, ended, cancel := b.running, b.everRan, b.runEnded, b.cancel
	close(b.stop)
	b.mu.Unlock()
	defer close(b.shut)

	ours := true // nobody else makes calls any more
	if running {
		select {
		case <-ended:
		case <-ctx.Done():
			cancel(context.Cause(ctx))
			ours = false
		}
	}
	if ours && everRan {
		b.drain(ctx)
	}
	b.endWatchers(ctx)
	err := b.abandon(ctx, everRan)
	b.pushMetrics()
	return err
}

// drain closes all series and sends what they owe, in the goroutine of the shutdown.
func (b *Broadcaster) drain(ctx context.Context) {
	now := time.Now()
	b.mu.Lock()
	b.gate.until = time.Time{}
	for s := b.tab.aged.oldest(); s != nil; s = b.tab.aged.oldest() {
		b.tab.aged.remove(s)
		b.step(s, input{kind: inClose, closing: suspended, now: now})
	}
	for _, list := range []*seriesList{&b.tab.urgent, &b.tab.queue} {
		for s := list.head; s != nil; s = s.qnext {
			s.retryAt = time.Time{}
			if s.st.closing == notClosing {
				s.st, _ = step(s.st, input{kind: inClose, closing: suspended, now: now}, &b.policy)
			}
		}
	}
	b.mu.Unlock()

	for ctx.Err() == nil {
		b.mu.Lock()
		if b.tab.urgent.len+b.tab.queue.len+len(b.old.queue) == 0 {
			b.mu.Unlock()
			return
		}
		j, pause := b.next(time.Now())
		b.mu.Unlock()
		if pause == 0 {
			b.perform(ctx, j)
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// endWatchers lets the watchers finish and waits for them.
func (b *Broadcaster) endWatchers(ctx context.Context) {
	b.mu.Lock()
	var ending []*watcher
	for w := range b.watchers {
		ending = append(ending, w)
		b.removeWatcher(w)
	}
	b.mu.Unlock()
	for _, w := range ending {
		select {
		case <-w.done:
		case <-ctx.Done():
			return
		}
	}
}

// abandon counts what is left and drops it.
func (b *Broadcaster) abandon(ctx context.Context, everRan bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandoned = true
	left := b.tab.queue.len + b.tab.urgent.len + b.inflight
	occurrences := b.count.unsent
	b.count.drop(DropShutdown, occurrences)
	b.count.unsent = 0
	b.tab.init(1)
	b.old.queue = nil
	if left == 0 && occurrences == 0 {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case !everRan:
		cause = errNeverRan
	case b.lastErr != nil && cause != nil:
		cause = errors.Join(cause, b.lastErr)
	}
	return &UnsentError{Series: left, Occurrences: occurrences, Cause: cause}
}
