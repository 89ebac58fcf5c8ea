// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
)

// forever is a wait that a signal ends.
const forever = time.Duration(1<<63 - 1)

// Run writes events to the sink until the context ends or the broadcaster is shut down, and returns when nothing that it started runs any more.
// The goroutine that calls it owns the writes; with Options.Writers above one it starts that many others instead. What is unsent when the
// context ends stays in the table: a shutdown sends it, or the next Run. It returns ErrRunning, ErrShutdown or ErrNoSink if it cannot start, nil otherwise.
func (b *Broadcaster) Run(ctx context.Context) error {
	ctx, err := b.start(ctx)
	if err != nil {
		return err
	}
	b.record(ctx)
	return nil
}

// start claims the right to record. Whoever gets it must call record.
func (b *Broadcaster) start(ctx context.Context) (context.Context, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.opts.Sink == nil:
		return nil, ErrNoSink
	case b.stopped:
		return nil, ErrShutdown
	case b.running:
		return nil, ErrRunning
	}
	ctx, b.cancel = context.WithCancelCause(ctx)
	b.running, b.everRan = true, true
	b.runEnded = make(chan struct{})
	return ctx, nil
}

func (b *Broadcaster) record(ctx context.Context) {
	defer func() {
		b.mu.Lock()
		b.running = false
		b.cancel(nil)
		ended := b.runEnded
		b.mu.Unlock()
		b.pushMetrics()
		close(ended)
	}()
	b.reconstruct(ctx)
	if b.opts.Writers == 1 {
		b.write(ctx, b.stop)
		return
	}
	var writers sync.WaitGroup
	for range b.opts.Writers {
		writers.Go(func() { b.write(ctx, b.stop) })
	}
	writers.Wait()
}

// job is one call, taken from the table.
type job struct {
	series *series
	op     op
	event  *eventsv1.Event
	legacy *legacyItem
	probe  bool
}

// write makes the calls that are owed, one after the other, until it is told to stop.
func (b *Broadcaster) write(ctx context.Context, stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		default:
		}
		b.mu.Lock()
		j, wait := b.next(time.Now())
		b.mu.Unlock()
		if wait == 0 {
			b.perform(ctx, j)
			b.pushMetrics()
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-stop:
		case <-b.wakeup:
		case <-timer.C:
		}
	}
}

// next takes the next call from the table; with a wait above zero there is none before that. The lock is held.
func (b *Broadcaster) next(now time.Time) (j job, wait time.Duration) {
	wait = b.fire(now)
	if d := b.gate.closed(now); d > 0 {
		return j, min(wait, d)
	}
	if b.gate.probing() && b.inflight > 0 {
		return j, wait
	}
	if b.old.active && !b.asking {
		if d := b.old.nextProbe.Sub(now); d > 0 {
			wait = min(wait, d)
		} else {
			b.askGroup = true
		}
	}
	switch {
	case b.askGroup && !b.asking:
		if b.inflight > 0 { // the answer may empty the table: nothing of it may be under way
			return j, wait
		}
		b.asking = true
		b.inflight++
		j.probe = true
		b.count.calls["probe"]++
	case b.asking: // do not pile up creates on a server that may not know them
		return j, wait
	case len(b.old.queue) > 0 && !b.old.busy:
		b.old.busy = true
		b.inflight++
		j.legacy = b.old.queue[0]
		b.count.calls["legacy"]++
	case b.old.active:
		return j, wait
	default:
		var retry time.Duration
		if j, retry = b.pick(now); j.series == nil {
			return j, min(wait, retry)
		}
		b.inflight++
		b.busy[j.series.object] = struct{}{}
		b.count.calls[j.op.kind.String()]++
	}
	if b.opts.Writers > 1 {
		b.signal() // there may be more for another writer
	}
	return j, 0
}

// fire runs the deadlines that have come and returns the time to the next one.
func (b *Broadcaster) fire(now time.Time) time.Duration {
	for len(b.tab.timers) > 0 {
		s := b.tab.timers[0]
		if d := s.wake.Sub(now); d > 0 {
			return d
		}
		b.step(s, input{kind: inTick, now: now})
		if s.heapIndex >= 0 && !s.wake.After(now) { // owes a call already: nothing more will come of this deadline
			b.tab.schedule(s, time.Time{})
		}
	}
	return forever
}

// pick takes the first series that may be sent. Where one has to wait, so does everything else about its object, to keep the order.
func (b *Broadcaster) pick(now time.Time) (j job, retry time.Duration) {
	retry = forever
	var blocked map[objectKey]struct{}
	for _, list := range []*seriesList{&b.tab.urgent, &b.tab.queue} {
		var following *series
		for s := list.head; s != nil; s = following {
			following = s.qnext
			if _, held := b.busy[s.object]; held {
				continue
			}
			if _, held := blocked[s.object]; held {
				continue
			}
			if d := s.retryAt.Sub(now); d > 0 {
				retry = min(retry, d)
				if blocked == nil {
					blocked = map[objectKey]struct{}{}
				}
				blocked[s.object] = struct{}{}
				continue
			}
			list.remove(s)
			st, e := step(s.st, input{kind: inSend, now: now}, &b.policy)
			s.st = st
			if e.op.kind == opNone {
				b.apply(s, e)
				continue
			}
			s.inflight = true
			return job{series: s, op: e.op, event: s.event(e.op)}, 0
		}
	}
	return j, retry
}

// perform makes one call, without the lock, and books the answer.
func (b *Broadcaster) perform(ctx context.Context, j job) {
	call, cancel := context.WithTimeout(ctx, b.opts.WriteTimeout)
	defer cancel()
	switch {
	case j.probe:
		b.performProbe(ctx, call)
	case j.legacy != nil:
		b.performLegacy(ctx, call, j.legacy)
	default:
		var stored *eventsv1.Event
		var err error
		if j.op.kind == opCreate {
			stored, err = b.opts.Sink.Create(call, j.event)
		} else {
			stored, err = b.opts.Sink.Patch(call, j.event, j.op.patch())
		}
		b.answered(ctx, j, stored, err)
	}
}
