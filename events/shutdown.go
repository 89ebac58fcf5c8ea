// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

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
	errCallTooLong     = errors.New("the call had its share of the time for the shutdown")
	errNeverRan        = errors.New("recording to the sink was never started")
)

// ShutdownWithContext takes no more events, sends what waits and the final count of every series
// that goes on, with the state Unknown so that a restart continues it, lets the watchers see what
// was emitted, and returns when nothing of the broadcaster runs any more or the context ends. A
// handler or a sink that does not return in time is not waited for. A server in trouble is tried
// once more at once, then by the usual delays. What could not be sent is dropped, counted as such,
// and returned as an *UnsentError. A second call waits for the first and returns nil.
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
		case <-time.After(b.share(ctx)): // a call that hangs does not use up the time of all others
			cancel(errCallTooLong)
			select {
			case <-ended:
			case <-ctx.Done():
				ours = false
			}
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

// share is the longest that one call may take of what is left of the time for the shutdown.
func (b *Broadcaster) share(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return b.opts.WriteTimeout
	}
	return min(time.Until(end)/3, b.opts.WriteTimeout)
}

// drain closes all series and sends what they owe, in the goroutine of the shutdown; then the
// rosters.
func (b *Broadcaster) drain(ctx context.Context) {
	b.suspend(time.Now())
	owed := func() bool { return b.tab.urgent.Len()+b.tab.queue.Len() > 0 }
	b.sendWhile(ctx, owed, b.next)
	b.sendWhile(ctx, func() bool { return len(b.leaving()) > 0 }, func(now time.Time) (j job, wait time.Duration) {
		if d := b.gate.closed(now); d > 0 {
			return j, d
		}
		j.roster = b.leaving()[0]
		j.roster.busy = true
		b.inflight++
		return j, 0
	})
}

// leaving is the rosters that must be written before the end. The lock is held.
func (b *Broadcaster) leaving() (out []*roster) {
	for _, r := range b.rosters {
		if r.restored && r.due && !r.listing && !r.refused && len(r.last) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// suspend closes all series, and notes which of them a restart may continue.
func (b *Broadcaster) suspend(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate.until = time.Time{}
	for _, r := range b.rosters {
		r.last = b.goingOn(r)
	}
	for s := b.tab.oldest(); s != nil; s = b.tab.oldest() {
		b.tab.unlist(s)
		b.step(s, input{kind: inClose, closing: suspended, now: now})
	}
	for _, l := range []*list.List{b.tab.urgent, b.tab.queue} {
		var following *list.Element
		for e, n := l.Front(), l.Len(); n > 0; e, n = following, n-1 {
			following = e.Next()
			s := e.Value.(*series)
			if s.retryAt = (time.Time{}); s.attempts > 0 { // what failed comes after what may not
				l.MoveToBack(e)
			}
			if s.st.closing != notClosing {
				continue
			}
			if r := b.rosters[s.key.source]; s.waiting {
				r.last = append(r.last, s) // its name may change yet: what an earlier process left is perhaps not known
			}
			s.st, _ = step(s.st, input{kind: inClose, closing: suspended, now: now}, &b.policy)
		}
	}
	for _, r := range b.rosters {
		r.due = true
	}
}

// sendWhile makes the calls that next gives, each within its share of the time.
func (b *Broadcaster) sendWhile(ctx context.Context, owed func() bool, next func(time.Time) (job, time.Duration)) {
	for ctx.Err() == nil {
		b.mu.Lock()
		if !owed() {
			b.mu.Unlock()
			return
		}
		j, pause := next(time.Now())
		b.mu.Unlock()
		if pause == 0 {
			b.perform(ctx, j, b.share(ctx))
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
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
	left := b.tab.queue.Len() + b.tab.urgent.Len() + b.inflight
	occurrences := b.count.Unsent
	b.count.drop(DropShutdown, occurrences)
	b.count.Unsent = 0
	b.tab.init(1)
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
