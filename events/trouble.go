// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	ownFaults = 3  // after so many failures in a row that may be its own, a series waits by itself
	maxFaults = 12 // after so many, while others get through, it is given up
	// authGrace is how long after trouble a 403 is not believed: a kube-apiserver that has just
	// started refuses everybody until its roles are loaded, for a second or so. The first call that
	// is not refused ends it.
	authGrace = 30 * time.Second
)

// reconsider corrects a verdict by what is known beyond the answer. The lock is held.
func (b *Broadcaster) reconsider(s *series, o op, v judged, err error, now time.Time) judged {
	switch {
	case v.verdict == verdictMissing && o.kind == opCreate: // an aggregated or starting server that does not know Events
		v.verdict = verdictRefused
		if routeMissing(err) {
			v.verdict, v.reason = verdictTrouble, "GroupAbsent"
		}
	case v.verdict == verdictExists && s.st.phase == settling && !s.st.retried: // somebody else's: take another name
		s.name = eventName(s.template.Regarding.Name, s.id, b.birth(now))
		v = judged{verdict: verdictConflict, reason: v.reason}
	}
	v = b.doubted(v, now)
	if v.verdict == verdictFault && b.okWrites > s.okBefore {
		s.okBefore = b.okWrites
		if s.blamed++; s.blamed >= maxFaults { // the server fails at this one, again and again, while it takes others
			v.verdict = verdictRefused
		}
	}
	return v
}

// doubted takes a 403 within the grace for trouble.
func (b *Broadcaster) doubted(v judged, now time.Time) judged {
	if v.verdict == verdictRefused && v.reason == string(metav1.StatusReasonForbidden) && now.Before(b.doubt) {
		v.verdict = verdictTrouble
	}
	return v
}

// troubled books a call of a series that will be made again. The lock is held.
func (b *Broadcaster) troubled(ctx context.Context, s *series, v judged, err error, now time.Time) {
	if v.verdict == verdictStopped {
		return
	}
	if v.verdict != verdictTrouble { // perhaps this one in particular: after a while, let others try before it
		s.attempts++
		if v.verdict == verdictConflict || s.attempts >= ownFaults || b.stopped {
			s.retryAt = now.Add(min(b.opts.BackoffBase<<min(s.attempts, 20), b.opts.BackoffMax))
		}
	}
	b.failed(ctx, v, err, now)
}

// failed books a call that will be made again, and closes the gate unless only one object was in
// the way.
func (b *Broadcaster) failed(ctx context.Context, v judged, err error, now time.Time) {
	b.lastErr = err
	b.count.Retries[v.reason]++
	if v.verdict == verdictConflict {
		return
	}
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
