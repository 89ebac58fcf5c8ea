// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"math/rand/v2"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// answered books the answer to the call of a series.
func (b *Broadcaster) answered(ctx context.Context, j job, stored *eventsv1.Event, err error) {
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
	if v.verdict == verdictMissing && j.op.kind == opCreate {
		v = b.createMissing(s, v, err)
	}
	v = b.doubted(v, now)
	if v.verdict == verdictFault && b.hopeless(s) {
		v.verdict = verdictRefused
	}
	switch v.verdict {
	case verdictOK:
		in.kind = inDone
		if j.op.kind == opRead {
			in.seen = s.look(stored)
		}
		s.attempts, s.probed = 0, false
		b.okWrites++
		b.openGate(ctx)
	case verdictExists:
		in.kind = inExists
		b.openGate(ctx)
	case verdictMissing:
		in.kind = inMissing
		if j.op.kind == opPatch {
			b.count.transitions["renewed"]++
		}
		b.openGate(ctx)
	case verdictRefused:
		in.kind = inRefused
		b.count.rejected[v.reason]++
		b.openGate(ctx)
		klog.FromContext(ctx).V(2).Info("Event refused by the server", "event", klog.KObj(j.event), "reason", j.event.Reason, "why", v.reason, "err", err)
	default:
		in.kind = inFailed
		b.troubled(ctx, s, v, err, now)
		b.listOf(s).pushFront(s) // before anything that came later
	}
	b.step(s, in)
	b.evict(now)
	b.signalIfOwed()
}

func (b *Broadcaster) listOf(s *series) *seriesList {
	if s.st.closing == evicted {
		return &b.tab.urgent
	}
	return &b.tab.queue
}

// signalIfOwed wakes another writer after an answer that may have freed an object for it.
func (b *Broadcaster) signalIfOwed() {
	if b.opts.Writers > 1 && b.tab.urgent.len+b.tab.queue.len > 0 {
		b.signal()
	}
}

// troubled books a call that will be made again.
func (b *Broadcaster) troubled(ctx context.Context, s *series, v judged, err error, now time.Time) {
	if v.verdict == verdictStopped {
		return
	}
	b.lastErr = err
	b.count.retries[v.reason]++
	if v.verdict != verdictTrouble { // this one in particular: after a while, let others try before it
		if s.attempts++; s.attempts == 1 {
			s.okBefore = b.okWrites
		}
		if v.verdict == verdictConflict || s.attempts >= ownFaults {
			s.retryAt = now.Add(min(b.opts.BackoffBase<<min(s.attempts, 20), b.opts.BackoffMax))
		}
	}
	if v.verdict != verdictConflict {
		b.shutGate(ctx, v, err, now)
	}
}

const (
	ownFaults = 3  // after so many 500s in a row a series waits by itself
	maxFaults = 12 // after so many, while others get through, it is given up
)

// hopeless is true of an event that the server fails at, again and again, while it takes others.
func (b *Broadcaster) hopeless(s *series) bool {
	return s.attempts+1 >= maxFaults && b.okWrites > s.okBefore
}

// authGrace is how long after trouble a 403 is not believed: a kube-apiserver that has just started refuses everybody until its roles are
// loaded, for a second or so. The first call that is not refused ends it.
const authGrace = 30 * time.Second

// doubted takes a 403 within the grace for trouble.
func (b *Broadcaster) doubted(v judged, now time.Time) judged {
	if v.verdict == verdictRefused && v.reason == string(metav1.StatusReasonForbidden) && now.Before(b.doubt) {
		v.verdict = verdictTrouble
	}
	return v
}

func (b *Broadcaster) shutGate(ctx context.Context, v judged, err error, now time.Time) {
	if v.reason != string(metav1.StatusReasonForbidden) {
		b.doubt = now.Add(authGrace)
	}
	first := !b.gate.probing()
	b.gate = b.gate.fail(now, v.after, rand.Float64())
	if logger := klog.FromContext(ctx); first {
		logger.Info("Event recording paused", "why", v.reason, "for", b.gate.closed(now), "err", err)
	} else {
		logger.V(4).Info("Event recording still paused", "why", v.reason, "for", b.gate.closed(now), "err", err)
	}
}

func (b *Broadcaster) openGate(ctx context.Context) {
	if b.gate.probing() {
		klog.FromContext(ctx).Info("Event recording resumed", "failures", b.gate.failures)
	}
	b.gate = b.gate.succeed()
	b.doubt = time.Time{}
	b.lastErr = nil
}
