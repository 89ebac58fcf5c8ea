// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/klog/v2"
)

// forever is a wait that a signal ends.
const forever = time.Duration(1<<63 - 1)

// Run writes events to the sink until the context ends or the broadcaster is shut down, and returns
// when nothing that it started runs any more. The goroutine that calls it owns the writes; with
// Options.Writers above one it starts that many others instead. What is unsent when the context
// ends stays in the table: a shutdown sends it, or the next Run. It returns ErrRunning, ErrShutdown
// or ErrNoSink if it cannot start, nil otherwise.
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

// job is one call, taken from the table: of a series, or of a source's roster.
type job struct {
	series *series
	op     op
	event  *eventsv1.Event
	roster *roster
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
			b.perform(ctx, j, b.opts.WriteTimeout)
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

// next takes the next call from the table; with a wait above zero there is none before that. The
// lock is held.
func (b *Broadcaster) next(now time.Time) (j job, wait time.Duration) {
	wait = b.fire(now)
	if d := b.gate.closed(now); d > 0 {
		return j, min(wait, d)
	}
	if b.gate.probing() && b.inflight > 0 {
		return j, wait
	}
	// What earlier processes left comes before everything that is new, or a series would get two
	// objects.
	r, d := b.nextRoster(now)
	switch {
	case r != nil:
		j.roster = r
		r.busy = true
	case d == 0: // one is being restored
		return j, wait
	default:
		var retry time.Duration
		if j, retry = b.pick(now); j.series == nil {
			return j, min(wait, retry, d)
		}
		b.busy[j.series.object] = struct{}{}
		b.count.Calls[j.op.kind.String()]++
	}
	b.inflight++
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

// pick takes the first series that may be sent. Where one has to wait, so does everything else
// about its object, to keep the order.
func (b *Broadcaster) pick(now time.Time) (j job, retry time.Duration) {
	retry = forever
	var blocked map[objectKey]struct{}
	for _, l := range []*list.List{b.tab.urgent, b.tab.queue} {
		var following *list.Element
		for e := l.Front(); e != nil; e = following {
			following = e.Next()
			s := e.Value.(*series)
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
			b.tab.dequeue(s)
			st, eff := step(s.st, input{kind: inSend, now: now}, &b.policy)
			s.st = st
			if eff.op.kind == opNone {
				b.apply(s, eff)
				continue
			}
			s.inflight = true
			return job{series: s, op: eff.op, event: s.event(eff.op)}, 0
		}
	}
	return j, retry
}

// perform makes one call within the limit, without the lock, and books the answer.
func (b *Broadcaster) perform(ctx context.Context, j job, limit time.Duration) {
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if j.roster != nil {
		b.performRoster(ctx, call, j.roster)
		return
	}
	var err error
	if j.op.kind == opCreate {
		_, err = b.opts.Sink.Create(call, j.event)
	} else {
		_, err = b.opts.Sink.Patch(call, j.event, j.op.patch())
	}
	b.answered(ctx, j, err)
}

// answered books the answer to the call of a series.
func (b *Broadcaster) answered(ctx context.Context, j job, err error) {
	s, now, v := j.series, time.Now(), judge(ctx, err)
	in := input{now: now, op: j.op}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abandoned {
		return
	}
	s.inflight = false
	b.inflight--
	delete(b.busy, s.object)
	v = b.reconsider(s, j.op, v, err, now)
	switch v.verdict {
	case verdictOK:
		in.kind = inDone
		b.okWrites++
		s.attempts, s.blamed, s.okBefore = 0, 0, b.okWrites
		b.openGate(ctx)
	case verdictExists:
		in.kind = inExists
		b.openGate(ctx)
	case verdictMissing:
		in.kind = inMissing
		b.count.Transitions["renewed"]++
		b.openGate(ctx)
	case verdictRefused:
		in.kind = inRefused
		b.count.Rejected[v.reason]++
		b.openGate(ctx)
		b.complain(ctx, v.reason, err, j.event)
	default:
		in.kind = inFailed
		if b.troubled(ctx, s, v, err, now); b.stopped {
			s.attempts++ // its share of the time for the shutdown is over
		}
		b.tab.enqueue(s, true) // before anything that came later
	}
	b.step(s, in)
	b.evict(now)
	if b.opts.Writers > 1 && b.tab.urgent.Len()+b.tab.queue.Len() > 0 { // the object may be free for another writer now
		b.signal()
	}
}

// step feeds an input to a series and carries out the effects. The lock is held.
func (b *Broadcaster) step(s *series, in input) {
	in.rand = rand.Float64()
	before := s.st.phase
	var e effects
	s.st, e = step(s.st, in, &b.policy)
	if e.forget && before != rejected && s.st.stored > 0 && s.st.closing == evicted {
		b.tab.dormant.Add(s.id, dormant{s.st, s.name})
	}
	if before != ongoing && s.st.phase == ongoing {
		b.rosters[s.key.source].changed(in.now)
	}
	b.apply(s, e)
}

// apply brings the table in line with the state of a series. The lock is held.
func (b *Broadcaster) apply(s *series, e effects) {
	t := &b.tab
	b.count.Acknowledged += e.acked
	b.count.Unsent -= e.acked + e.lost
	b.count.drop(DropRejected, e.lost)
	if s.st.phase != settling {
		t.written(s)
	}
	if e.forget {
		if s.st.closing == finished && s.st.stored > 1 {
			b.count.Transitions["finished"]++
		}
		t.forget(s)
		return
	}
	switch s.st.closing {
	case finished, suspended:
		t.retire(s)
	case evicted:
		t.unlist(s)
	default:
		if s.current && s.st.phase != settling && s.age == nil {
			t.touch(s)
		}
	}
	t.schedule(s, e.wake)
	if e.owes && t.enqueue(s, false) {
		b.signal()
	}
}

// evict makes room in the table by closing the series whose last occurrence is the longest ago.
// What they still owe is sent before anything else. The lock is held.
func (b *Broadcaster) evict(now time.Time) {
	for b.tab.aged.Len() > b.opts.MaxSeries {
		s := b.tab.oldest()
		b.tab.unlist(s)
		b.count.Transitions["evicted"]++
		b.tab.dequeue(s) // it moves to the front
		b.step(s, input{kind: inClose, closing: evicted, now: now})
	}
}

// complain says at default verbosity that the server refuses events, for each reason once in a
// while: a role that lacks a verb must not be found by the silence. The lock is held.
func (b *Broadcaster) complain(ctx context.Context, reason string, err error, e *eventsv1.Event) {
	const every = 10 * time.Minute
	logger, now := klog.FromContext(ctx), time.Now()
	if now.Before(b.complained[reason]) {
		logger.V(2).Info("Event refused by the server", "event", klog.KObj(e), "reason", e.Reason, "why", reason, "err", err)
		return
	}
	b.complained[reason] = now.Add(every)
	logger.Error(err, "The server refuses events; they are lost, and counted as dropped", "why", reason, "event", klog.KObj(e),
		"reason", e.Reason, "nextMessageIn", every)
}
