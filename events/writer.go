// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Waits other than durations.
const (
	forever = time.Duration(1<<63 - 1) // until a signal
	over    = time.Duration(-1)        // this Run makes no further call: a shutdown has begun or is done
)

// Run writes events to the sink until the context ends or the broadcaster is shut down, and returns
// after its goroutines have ended. Events unsent at the context's end stay in the table, for the
// next Run or a shutdown. Run returns ErrRunning, ErrShutdown or ErrNoSink if recording cannot
// start, nil otherwise.
func (b *Broadcaster) Run(ctx context.Context) error {
	ctx, err := b.start(ctx)
	if err != nil {
		return err
	}
	b.record(ctx)
	return nil
}

// start claims the right to record. On success the caller must call record.
func (b *Broadcaster) start(ctx context.Context) (context.Context, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.opts.Sink == nil:
		return nil, ErrNoSink
	case b.stopped && b.draining == nil:
		return nil, ErrShutdown
	case b.running:
		return nil, ErrRunning
	}
	ctx, b.cancel = context.WithCancelCause(ctx)
	b.running = true
	b.runEnded = make(chan struct{})
	return ctx, nil
}

func (b *Broadcaster) record(ctx context.Context) {
	var writers sync.WaitGroup
	for range b.opts.Writers {
		writers.Go(func() { b.write(ctx) })
	}
	writers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = false
	b.cancel(nil)
	close(b.runEnded)
}

// write makes the calls owed, in sequence, until next says that no call is left.
func (b *Broadcaster) write(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		b.mu.Lock()
		j, wait := b.next(time.Now())
		b.mu.Unlock()
		switch {
		case wait == 0:
			b.perform(ctx, j)
			continue
		case wait == over:
			b.signal() // for the next writer
			return
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-b.wakeup:
		case <-timer.C:
		}
	}
}

// job is a call of a series, or of a roster.
type job struct {
	series *series
	roster *roster
	names  []string // for the roster
	call   call
	event  *eventsv1.Event
	limit  time.Duration // of the call
}

// next takes the next call from the table. A wait other than zero means no call before then. The
// lock is held.
func (b *Broadcaster) next(now time.Time) (j job, wait time.Duration) {
	if b.stopped && b.draining == nil {
		return j, over
	}
	wait = b.sweep(now)
	if g := b.gates[scope{}]; g != nil && (g.closed(now) > 0 || b.inflight > 0) {
		return j, min(wait, cmp.Or(g.closed(now), forever))
	}
	// The names left by an earlier process are read before new calls, or a series would get two
	// objects.
	j, d := b.nextRoster(now)
	if j.roster == nil && d > 0 {
		wait = min(wait, d)
		if !b.stopped && b.tab.queue.Len() == 0 {
			wait = min(wait, b.closeLeft(now))
		}
		j, d = b.pick(now)
	}
	switch {
	case j.call.kind != callNone:
	case b.draining != nil && b.inflight == 0 && b.tab.queued() == 0:
		return j, over
	default:
		return j, min(wait, cmp.Or(d, forever))
	}
	b.inflight++
	if j.limit = writeTimeout; b.draining != nil {
		j.limit = b.share(b.draining)
	}
	if j.roster != nil || j.call.kind == callRead && j.series.st.stored+j.series.st.sent == 0 {
		j.limit = min(j.limit, restoreTimeout)
	}
	if b.opts.Writers > 1 && b.tab.queue.Len()+len(b.rosters) > 1 {
		b.signal() // there is more for another writer
	}
	return j, 0
}

// sweep ends silent series and returns the time until the next end. A shutdown ends them all.
func (b *Broadcaster) sweep(now time.Time) time.Duration {
	for e := b.tab.aged.Front(); e != nil && !b.stopped; e = b.tab.aged.Front() {
		s := e.Value.(*series)
		if d := s.st.quiet().Add(b.opts.FinishAfter).Sub(now); d > 0 {
			return d
		}
		s.st.tick(now, &b.opts)
		b.settle(s, now)
	}
	return forever
}

// pick takes the first series free to be sent. Without a call, retry is the time until a series may
// be free.
func (b *Broadcaster) pick(now time.Time) (j job, retry time.Duration) {
	if !b.heldUntil.After(now) {
		b.release(now)
	}
	retry = b.heldUntil.Sub(now)
	var following *list.Element
	for e := b.tab.queue.Front(); e != nil && j.series == nil; e = following {
		following = e.Next()
		s := e.Value.(*series)
		g, object := b.gates[s.scope()], s.object()
		if d := b.busy[object].Sub(now); d > 0 {
			retry = min(retry, d)
		} else if d := g.closed(now); d > 0 {
			s.enqueue(&b.tab.held, false)
			if retry = min(retry, d); g.until.Before(b.heldUntil) {
				b.heldUntil = g.until
			}
		} else if j = b.callOf(s, now); j.series != nil {
			b.busy[object] = now.Add(forever) // until the answer
			if g != nil {
				g.until = now.Add(writeTimeout) // for the others, likewise
			}
		}
	}
	return j, retry
}

// callOf takes a series from the queue. It returns the call of the series, if one is left to make.
func (b *Broadcaster) callOf(s *series, now time.Time) (j job) {
	s.dequeue()
	r := b.rosters[s.key.source]
	if s.seen != r.shared {
		s.st.mistrust(now)
	}
	c := s.st.next(now, &b.opts)
	if c.kind == callNone {
		b.settle(s, now)
		return j
	}
	s.inflight = true
	b.count.Calls[string(c.kind)]++
	return job{series: s, call: c, event: s.event(r.src, c)}
}

// perform makes a call, without the lock, and books the answer.
func (b *Broadcaster) perform(ctx context.Context, j job) {
	if j.roster != nil && j.call.kind != callRead {
		j.writeNames()
	}
	var body []byte
	switch j.call.kind {
	case callRead:
		body = []byte("{}")
	case callPatch:
		body = patchBody(j.event)
	}
	timed, cancel := context.WithTimeout(ctx, j.limit)
	defer cancel()
	var stored *eventsv1.Event
	var err error
	if j.call.kind == callCreate {
		stored, err = b.opts.Sink.Create(timed, j.event)
	} else {
		stored, err = b.opts.Sink.Patch(timed, j.event, body)
	}
	if stored == nil {
		stored = j.event // a sink without an answer
	}
	now, v := time.Now(), judge(ctx, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.inflight--; {
	case b.abandoned:
	case j.roster != nil:
		b.rosterAnswered(ctx, j, stored, v, err, now)
	default:
		b.answered(ctx, j, stored, v, err, now)
	}
}

func patchBody(e *eventsv1.Event) []byte {
	var p struct {
		Metadata struct {
			ResourceVersion string            `json:"resourceVersion,omitempty"`
			Annotations     map[string]string `json:"annotations,omitempty"`
		} `json:"metadata"`
		Series *eventsv1.EventSeries `json:"series,omitempty"`
	}
	p.Metadata.ResourceVersion, p.Metadata.Annotations, p.Series = e.ResourceVersion, e.Annotations, e.Series
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // these types always have an encoding
	}
	return body
}

// answered books the answer to the call of a series. The lock is held.
func (b *Broadcaster) answered(ctx context.Context, j job, stored *eventsv1.Event, v judged, err error, now time.Time) {
	s, c, sc := j.series, j.call, j.series.scope()
	s.inflight = false
	delete(b.busy, s.object())
	if g := b.gates[sc]; g != nil {
		g.until, b.heldUntil = now, now
	}
	if v.verdict = b.reconsider(s, c, sc, v, now); v.verdict < verdictTrouble {
		b.openGate(ctx)
	}
	switch v.verdict {
	case verdictOK:
		if c.kind == callRead {
			b.hasRead(s, stored, now)
		} else {
			b.hasWritten(s, c, stored, now)
			delete(b.gates, sc)
		}
		if len(b.granted) < 2*b.opts.MaxSeries {
			b.granted[sc] = true
		}
	case verdictMissing:
		b.missing(s, now)
	case verdictConflict:
		s.st.phase = phaseUnread
		b.count.Retries[v.reason]++
	case verdictRefused:
		if c.kind == callRead && s.st.stored+s.st.sent == 0 { // of an earlier process
			b.rename(s, now)
			break
		}
		lost := s.st.refused(now, &b.opts)
		b.count.Unsent -= lost
		b.count.drop(DropRejected, lost)
		b.count.Rejected[v.reason]++
		s.trouble = nil
		b.complain(ctx, v.reason, err, j.event, now)
	default:
		if v.perhaps {
			s.st.doubtful(c)
		}
		b.failed(ctx, s, sc, v, err, now)
	}
	b.settle(s, now)
	if written := v.verdict == verdictOK && c.kind != callRead; s.waits != nil && !written && v.verdict != verdictFault {
		s.enqueue(&b.tab.queue, true) // back to its place
	}
	b.evict(now)
	if b.opts.Writers > 1 && b.tab.queue.Len() > 0 || b.draining != nil { // the object may be free for another writer now
		b.signal()
	}
}

func (b *Broadcaster) hasWritten(s *series, c call, e *eventsv1.Event, now time.Time) {
	object, r, before := hash(s.object()), b.rosters[s.key.source], s.st.stored
	b.acknowledge(s.st.done(c, e.ResourceVersion, now, rand.Float64(), &b.opts))
	if s.st.stored > 1 { // tokens for slow loops
		b.limit.allow(object, now)
		if before <= 1 {
			r.want(now.Add(rosterSoon))
			b.limit.allow(object, now) // and the create
		}
	}
	s.trouble, s.seen = nil, r.shared
	b.okCalls++
}

// hasRead books the content of an object unknown before.
func (b *Broadcaster) hasRead(s *series, e *eventsv1.Event, now time.Time) {
	r := b.rosters[s.key.source]
	switch {
	case !r.same(e, s): // another's object has the name
		b.rename(s, now)
		return
	case s.st.stored+s.st.sent == 0:
		b.restored(s, look(e), now)
		return
	}
	f := look(e)
	if s.st.sent == 0 && s.st.version != f.version {
		r.shared++
	}
	s.seen = r.shared
	b.acknowledge(s.st.merge(f, now))
}

func (b *Broadcaster) acknowledge(n int64) {
	b.count.Acknowledged += n
	b.count.Unsent -= n
}

// reconsider corrects a verdict by knowledge beyond the answer. The lock is held.
func (b *Broadcaster) reconsider(s *series, c call, sc scope, v judged, now time.Time) verdict {
	g := b.gates[sc]
	switch {
	case v.verdict == verdictMissing && c.kind == callCreate:
		return verdictRefused
	case v.verdict == verdictRefused && v.reason == string(metav1.StatusReasonForbidden):
		if g == nil && (b.granted[sc] || b.gates[scope{}] != nil) || g != nil && now.Sub(g.since) < heldFor {
			return verdictHeld
		}
		delete(b.granted, sc)
		delete(b.gates, sc)
	case v.verdict == verdictConflict, v.verdict == verdictFault:
		if s.trouble == nil {
			s.trouble = &trouble{gate: *newGate(&b.opts, now), okBefore: b.okCalls}
		}
		t := s.trouble
		t.fail(now, v.after)
		if b.okCalls > t.okBefore {
			t.okBefore = b.okCalls
			t.blamed++
		}
		switch steady := t.failures > 1; {
		case t.blamed >= maxFaults: // the server fails at this series repeatedly and takes others
			return verdictRefused
		case v.verdict == verdictConflict && (c.kind == callRead || c.kind == callPatch && (steady || g != nil)):
			s.st.phase = phaseUnread
			return verdictHeld
		case v.verdict == verdictFault || steady: // else read at once
			b.busy[s.object()] = t.until
		}
	}
	return v.verdict
}

// failed books a call to be made again, and holds back calls likely to fail alike. The lock is
// held.
func (b *Broadcaster) failed(ctx context.Context, s *series, sc scope, v judged, err error, now time.Time) {
	if v.verdict == verdictStopped {
		return
	}
	b.lastErr = err
	b.count.Retries[v.reason]++
	switch {
	case v.verdict == verdictFault && s != nil && s.trouble.blamed > 0: // others get through
		return
	case v.verdict != verdictHeld:
		sc = scope{}
	}
	g, logger := b.gates[sc], klog.FromContext(ctx)
	if g == nil {
		g = newGate(&b.opts, now)
		b.gates[sc] = g
	} else {
		logger = logger.V(4)
	}
	g.fail(now, v.after)
	logger.Info("Event recording paused", "why", v.reason, "for", g.closed(now), "failures", g.failures, "namespace", sc.namespace, "call", sc.kind, "err", err)
}

// release returns the held series to the queue.
func (b *Broadcaster) release(now time.Time) {
	for e := b.tab.held.Back(); e != nil; e = b.tab.held.Back() {
		e.Value.(*series).enqueue(&b.tab.queue, true)
	}
	b.heldUntil = now.Add(forever)
}

// missing books that a series has no object.
func (b *Broadcaster) missing(s *series, now time.Time) {
	switch s.st.missing(); {
	case s.key.reason == "", s.st.stored+s.st.sent == 0: // named by a roster
		b.rename(s, now)
	case s.st.stored > 0:
		b.count.Transitions["renewed"]++
	}
}

// openGate books that the server answers.
func (b *Broadcaster) openGate(ctx context.Context) {
	if g := b.gates[scope{}]; g != nil {
		klog.FromContext(ctx).Info("Event recording resumed", "failures", g.failures)
		delete(b.gates, scope{})
		b.signal()
	}
	b.lastErr = nil
}

// settle brings the table in line with the state of a series. The lock is held.
func (b *Broadcaster) settle(s *series, now time.Time) {
	t := &b.tab
	if !s.known && (s.st.stored > 0 || s.st.phase == phaseResting || s.st.phase == phaseDone) {
		s.known = true
		t.known++
	}
	if s.st.over(now) && !s.inflight {
		switch {
		case s.st.end == suspended && s.st.phase != phaseResting: // stays in aged, for the last roster
			s.dequeue()
			if s.age == nil {
				t.touch(s)
			}
			return
		case s.st.phase == phaseResting:
		case s.st.end == finished && s.st.stored > 1:
			b.count.Transitions["finished"]++
		case s.st.end == evicted && s.st.stored > 0:
			for id := range t.gone { // any, to make room
				if len(t.gone) < 2*b.opts.MaxSeries {
					break
				}
				delete(t.gone, id)
			}
			t.gone[s.id] = gone{s.name, s.st}
		}
		t.forget(s)
		return
	}
	switch {
	case s.st.end == finished:
		t.retire(s)
	case s.st.end == evicted:
		t.unage(s)
	case s.known && s.age == nil:
		t.touch(s)
	}
	b.enqueue(s, now)
}

// enqueue lets a writer make the call of a series, if there is one.
func (b *Broadcaster) enqueue(s *series, now time.Time) {
	if s.waits == nil && !s.inflight && s.st.owes(now) {
		s.enqueue(&b.tab.queue, s.st.end == evicted)
		if b.gates[s.scope()] == nil { // else at the gate's time
			b.signal()
		}
	}
}

// evict makes room in the table by closing the longest idle series. Their last writes are sent
// before all others. The lock is held.
func (b *Broadcaster) evict(now time.Time) {
	for b.tab.aged.Len() > b.opts.MaxSeries && !b.stopped {
		s := b.tab.aged.Front().Value.(*series)
		b.tab.unage(s)
		s.dequeue() // for the front
		s.st.end = evicted
		b.count.Transitions["evicted"]++
		b.settle(s, now)
	}
}

// complain logs the server's refusals at default verbosity, for each reason once in a while: a
// missing verb in a role must show in the log. The lock is held.
func (b *Broadcaster) complain(ctx context.Context, reason string, err error, e *eventsv1.Event, now time.Time) {
	const every = 10 * time.Minute
	if now.After(b.silent[reason]) {
		b.silent[reason] = now.Add(every)
		klog.FromContext(ctx).Error(err, "The server refuses events; they are lost, and counted as dropped", "why", reason, "event", klog.KObj(e),
			"reason", e.Reason, "nextMessageIn", every)
	}
}
