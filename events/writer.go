// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"hash/maphash"
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
	b.running, b.everRan = true, true
	b.runEnded = make(chan struct{})
	return ctx, nil
}

// record runs the writers.
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
	limit  time.Duration // of the call
	series *series
	call   call
	event  *eventsv1.Event
	roster *roster
}

// next takes the next call from the table. A wait other than zero means no call before then. The
// lock is held.
func (b *Broadcaster) next(now time.Time) (j job, wait time.Duration) {
	if b.stopped && b.draining == nil {
		return j, over
	}
	wait = b.sweep(now)
	if d := b.gate.closed(now); d > 0 {
		return j, min(wait, d)
	}
	if b.gate.probing() && b.inflight > 0 {
		return j, wait
	}
	// The names left by an earlier process are read before new calls, or a series would get two
	// objects.
	j, d := b.nextRoster(now)
	if j == (job{}) && d > 0 {
		wait = min(wait, d)
		j, d = b.pick(now)
	}
	if j == (job{}) {
		if b.draining != nil && b.inflight == 0 && b.owed() == 0 {
			return j, over
		}
		return j, min(wait, cmp.Or(d, forever))
	}
	b.inflight++
	if j.limit = writeTimeout; b.draining != nil {
		j.limit = b.share(b.draining)
	}
	if j.series == nil || j.series.left {
		j.limit = min(j.limit, restoreTimeout)
	}
	if b.opts.Writers > 1 && b.owed()+len(b.tab.left)+len(b.rosters) > 1 {
		b.signal() // there is more for another writer
	}
	return j, 0
}

// sweep ends silent series and returns the time until the next end.
func (b *Broadcaster) sweep(now time.Time) time.Duration {
	for e := b.tab.aged.Front(); e != nil; e = b.tab.aged.Front() {
		s := e.Value.(*series)
		if d := s.st.quiet().Add(b.policy.threshold).Sub(now); d > 0 {
			return d
		}
		s.st.tick(now, &b.policy)
		b.settle(s, now)
	}
	return forever
}

// pick takes the first series free to be sent. If a series has to wait, all others about its object
// wait too, in order.
func (b *Broadcaster) pick(now time.Time) (j job, retry time.Duration) {
	retry = forever
	for _, br := range b.scopes {
		if first := br.waiting.Front(); first == nil || br.busy {
			continue
		} else if d := br.closed(now); d > 0 {
			retry = min(retry, d)
		} else {
			s := first.Value.(*series)
			b.tab.move(s, b.tab.home(s), true)
		}
	}
	var blocked map[objectKey]struct{}
	for _, l := range []*list.List{b.tab.urgent, b.tab.queue, b.tab.idle} {
		var following *list.Element
		for e := l.Front(); e != nil; e = following {
			following = e.Next()
			s := e.Value.(*series)
			b.inherit(s)
			br := b.scopes[s.scope()]
			if br != nil && (br.busy || br.closed(now) > 0) {
				b.tab.move(s, br.waiting, false)
				retry = min(retry, cmp.Or(br.closed(now), forever))
				continue
			}
			object := s.key.regarding.object()
			_, busy := b.busy[object]
			if _, behind := blocked[object]; busy || behind {
				continue
			}
			if s.trouble != nil && s.trouble.closed(now) > 0 {
				retry = min(retry, s.trouble.closed(now))
				if blocked == nil {
					blocked = map[objectKey]struct{}{}
				}
				blocked[object] = struct{}{}
				continue
			}
			b.tab.dequeue(s)
			if s.seen != b.rosters[s.key.source].shared {
				s.st.mistrust(now)
			}
			c := s.st.next(now, &b.policy)
			if c.kind == callNone {
				b.settle(s, now)
				continue
			}
			if br != nil {
				br.busy = true
			}
			s.inflight = true
			b.busy[object] = struct{}{}
			b.count.Calls[c.kind.String()]++
			return job{series: s, call: c, event: s.event(b.rosters[s.key.source].src, c)}, 0
		}
	}
	return j, retry
}

// owed returns the number of series waiting for a call.
func (b *Broadcaster) owed() int {
	n := b.tab.urgent.Len() + b.tab.queue.Len()
	for _, br := range b.scopes {
		n += br.waiting.Len()
	}
	return n
}

// perform makes a call, without the lock, and books the answer.
func (b *Broadcaster) perform(ctx context.Context, j job) {
	timed, cancel := context.WithTimeout(ctx, j.limit)
	defer cancel()
	if j.roster != nil {
		b.performRoster(ctx, timed, j.roster)
		return
	}
	var stored *eventsv1.Event
	var err error
	switch j.call.kind {
	case callCreate:
		stored, err = b.opts.Sink.Create(timed, j.event)
	case callRead:
		stored, err = b.readEvent(timed, j.event.Namespace, j.event.Name)
	default:
		stored, err = b.opts.Sink.Patch(timed, j.event, j.call.patch())
	}
	b.answered(ctx, j, stored, err)
}

// readEvent reads an object by an empty patch.
func (b *Broadcaster) readEvent(ctx context.Context, namespace, name string) (*eventsv1.Event, error) {
	return b.opts.Sink.Patch(ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, []byte("{}"))
}

// patch returns the body of a patch.
func (c *call) patch() []byte {
	type meta struct {
		ResourceVersion string            `json:"resourceVersion,omitempty"`
		Annotations     map[string]string `json:"annotations"`
	}
	body, err := json.Marshal(struct {
		Metadata meta                  `json:"metadata"`
		Series   *eventsv1.EventSeries `json:"series"`
	}{meta{c.version, c.annotations()}, c.series()})
	if err != nil {
		panic(err) // these types always have an encoding
	}
	return body
}

// answered books the answer to the call of a series.
func (b *Broadcaster) answered(ctx context.Context, j job, stored *eventsv1.Event, err error) {
	s, c, now, v := j.series, j.call, time.Now(), judge(ctx, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abandoned {
		return
	}
	s.inflight = false
	b.inflight--
	delete(b.busy, s.key.regarding.object())
	sc := s.scope()
	if s.left && (v.verdict == verdictMissing || v.verdict == verdictConflict || v.verdict == verdictExists) {
		v, stored = judged{}, nil
	}
	b.reconsider(s, c, sc, &v, err, now)
	if c.kind == callRead && v.verdict == verdictOK && s.trouble.steady(stored) {
		b.hasRead(s, stored, now)
		v, err = judged{verdict: verdictHeld, reason: string(metav1.StatusReasonConflict)}, errSteadyConflict
	}
	switch v.verdict {
	case verdictOK:
		if c.kind == callRead {
			b.hasRead(s, stored, now)
		} else {
			b.hasWritten(s, c, stored, now)
		}
		if br := b.scopes[sc]; br != nil && (c.kind != callRead || !br.conflict) {
			b.release(sc)
		}
		if len(b.granted) < 2*b.opts.MaxSeries {
			b.granted[sc] = true
		}
		b.openGate(ctx)
	case verdictExists:
		s.st.phase = phaseUnread
		b.openGate(ctx)
	case verdictMissing:
		if b.openGate(ctx); s.st.stored == 0 && s.st.sent == 0 { // the object named by a roster is gone
			s.name = b.newName(s, now)
		} else if s.st.stored > 0 {
			b.count.Transitions["renewed"]++
		}
		s.st.missing()
	case verdictConflict:
		s.st.phase = phaseUnread
		b.count.Retries[v.reason]++
		b.openGate(ctx)
	case verdictRefused:
		b.openGate(ctx)
		b.refused(ctx, j, v.reason, err, now)
	default:
		if v.perhaps {
			s.st.doubtful(c)
		}
		b.failed(ctx, s, sc, v, err, now)
	}
	b.settle(s, now)
	switch v.verdict {
	case verdictOK, verdictTrouble, verdictStopped, verdictConflict:
		if s.waits != nil && (v.verdict != verdictOK || c.kind == callRead) {
			b.tab.move(s, s.in, true) // before later series
		}
	}
	b.evict(now)
	if b.opts.Writers > 1 && b.owed() > 0 || b.draining != nil { // the object may be free for another writer now
		b.signal()
	}
}

// refused books a call that will never work.
func (b *Broadcaster) refused(ctx context.Context, j job, reason string, err error, now time.Time) {
	lost := j.series.st.refused(now, &b.policy)
	b.count.Unsent -= lost
	b.count.drop(DropRejected, lost)
	b.count.Rejected[reason]++
	j.series.trouble = nil
	b.complain(ctx, reason, err, j.event)
}

// hasWritten books a successful create or patch.
func (b *Broadcaster) hasWritten(s *series, c call, e *eventsv1.Event, now time.Time) {
	version := ""
	if e != nil {
		version = e.ResourceVersion
	}
	before := s.st.stored
	b.acknowledge(s.st.done(c, version, now, rand.Float64(), &b.policy))
	if s.st.stored > 1 { // tokens for slow loops
		b.limit.allow(maphash.Comparable(seed, s.key.regarding.object()), now)
	}
	if before <= 1 && s.st.stored > 1 {
		b.rosters[s.key.source].changed(now)
		b.limit.allow(maphash.Comparable(seed, s.key.regarding.object()), now) // and the create
	}
	s.trouble, s.seen = nil, b.rosters[s.key.source].shared
	b.okCalls++
}

// hasRead books the content of an object unknown before.
func (b *Broadcaster) hasRead(s *series, e *eventsv1.Event, now time.Time) {
	r := b.rosters[s.key.source]
	if s.left {
		if b.tab.left[s.id.hint()] == s && e != nil && r.reports(e) {
			b.tab.dropLeft(s)
			b.rebuild(e, r, now)
		}
		s.st.phase = phaseDone
		return
	}
	if e == nil { // a sink without an answer
		s.st.phase = phaseStored
		return
	}
	ours := r.reports(e) && keyOf(e, r) == s.key
	f := look(e)
	s.seen = r.shared
	switch goOn, _ := b.policy.continues(f, s.st.begun); {
	case ours && (s.st.stored > 0 || s.st.sent > 0):
		if s.st.sent == 0 && s.st.version != f.version {
			r.shared++
			s.seen = r.shared
		}
		b.acknowledge(s.st.merge(f, now))
	case ours && goOn:
		s.st.adopt(f, now, &b.policy)
		b.count.Transitions["adopted"]++
		r.kept(now, b.opts.Heartbeat)
	default: // a new object; this series does not continue the found object
		s.name = b.newName(s, now)
		s.st.missing()
		if r.reports(e) {
			b.rebuild(e, r, now)
		}
	}
}

// acknowledge books occurrences known to the server.
func (b *Broadcaster) acknowledge(n int64) {
	b.count.Acknowledged += n
	b.count.Unsent -= n
}

// reconsider corrects a verdict by knowledge beyond the answer. The lock is held.
func (b *Broadcaster) reconsider(s *series, c call, sc scope, v *judged, err error, now time.Time) {
	if br := b.scopes[sc]; br != nil {
		br.busy = false
	}
	if v.verdict == verdictMissing && c.kind == callCreate { // a starting or aggregated server
		v.verdict = verdictRefused
		if routeMissing(err) {
			v.verdict, v.reason = verdictTrouble, "GroupAbsent"
		}
	}
	if v.verdict == verdictRefused && v.reason == string(metav1.StatusReasonForbidden) {
		br := b.scopes[sc]
		if believed := br != nil && now.Sub(br.since) >= heldFor; !believed && (br != nil || b.granted[sc] || now.Before(b.doubt)) {
			v.verdict = verdictHeld
		} else {
			delete(b.granted, sc)
			b.release(sc)
		}
	}
	switch v.verdict {
	case verdictExists, verdictConflict, verdictFault:
		if s.trouble == nil {
			s.trouble = &trouble{gate: newGate(&b.opts), okBefore: b.okCalls}
		}
		t := s.trouble
		if t.fail(now, v.after); t.failures == 1 && v.verdict != verdictFault {
			t.until = time.Time{} // read at once
		}
		if b.okCalls > t.okBefore {
			t.okBefore = b.okCalls
			t.blamed++
		}
		if t.blamed >= maxFaults { // the server fails at this series repeatedly and takes others
			v.verdict = verdictRefused
		} else if v.verdict == verdictConflict && (c.kind == callRead || b.scopes[sc] != nil) {
			v.verdict = verdictHeld
			s.st.phase = phaseUnread
		} else if v.verdict == verdictConflict {
			t.contested = c.version
		}
	}
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
	case v.verdict == verdictHeld:
		br := b.scopes[sc]
		if br == nil {
			br = &barrier{gate: newGate(&b.opts), since: now, waiting: list.New(), conflict: v.reason != string(metav1.StatusReasonForbidden)}
			b.scopes[sc] = br
			klog.FromContext(ctx).Error(err, "Event recording paused in a namespace", "namespace", sc.namespace, "call", sc.kind, "why", v.reason)
		}
		br.fail(now, v.after)
	case v.verdict == verdictFault && s != nil && s.trouble.blamed > 0: // others get through
	default:
		b.closeGate(ctx, v, err, now)
	}
}

// release lets the calls of a scope go again.
func (b *Broadcaster) release(sc scope) {
	br := b.scopes[sc]
	if br == nil {
		return
	}
	delete(b.scopes, sc)
	for e := br.waiting.Back(); e != nil; e = br.waiting.Back() {
		s := e.Value.(*series)
		b.tab.move(s, b.tab.home(s), true)
	}
}

// closeGate holds back everything.
func (b *Broadcaster) closeGate(ctx context.Context, v judged, err error, now time.Time) {
	b.doubt = now.Add(authGrace)
	logger := klog.FromContext(ctx)
	if b.gate.probing() { // paused before
		logger = logger.V(4)
	}
	b.gate.fail(now, v.after)
	logger.Info("Event recording paused", "why", v.reason, "for", b.gate.closed(now), "failures", b.gate.failures, "err", err)
}

func (b *Broadcaster) openGate(ctx context.Context) {
	if b.gate.probing() {
		klog.FromContext(ctx).Info("Event recording resumed", "failures", b.gate.failures)
		b.gate.succeed()
		b.signal()
	}
	b.doubt = time.Time{}
	b.lastErr = nil
}

// settle brings the table in line with the state of a series. The lock is held.
func (b *Broadcaster) settle(s *series, now time.Time) {
	t := &b.tab
	if s.left {
		if s.st.phase != phaseUnread {
			t.dropLeft(s)
		} else if t.left[s.id.hint()] == s && !b.stopped {
			t.enqueue(s)
		}
		return
	}
	stored := s.st.stored > 0 || s.st.phase == phaseResting || s.st.phase == phaseDone
	t.pend(s, !stored)
	if s.st.over(now) && !s.inflight {
		if s.st.end == finished && s.st.stored > 1 && s.st.phase != phaseResting {
			b.count.Transitions["finished"]++
		}
		if s.st.end == evicted && s.st.phase != phaseResting && s.st.stored > 0 {
			t.leave(s, 2*b.opts.MaxSeries)
		}
		t.forget(s)
		return
	}
	switch {
	case s.st.end == finished || s.st.end == suspended:
		t.retire(s)
	case s.st.end == evicted:
		t.unage(s)
	case stored && s.age == nil:
		t.touch(s)
	}
	if s.st.owes(now) && t.enqueue(s) {
		b.signal()
	}
}

// retire ends a series replaced by another with the same key.
func (b *Broadcaster) retire(s *series, now time.Time) {
	s.st.tick(now, &b.policy)
	b.tab.retire(s)
	b.settle(s, now)
}

// evict makes room in the table by closing the longest idle series. Their last writes are sent
// before all others. The lock is held.
func (b *Broadcaster) evict(now time.Time) {
	for b.tab.aged.Len() > b.opts.MaxSeries {
		s := b.tab.aged.Front().Value.(*series)
		b.tab.unage(s)
		b.count.Transitions["evicted"]++
		b.tab.dequeue(s) // the series moves to the front
		s.st.end = evicted
		b.settle(s, now)
	}
}

// complain logs the server's refusals at default verbosity, for each reason once in a while: a
// missing verb in a role must show in the log. The lock is held.
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
