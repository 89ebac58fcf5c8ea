// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math/rand/v2"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// maxFaults bounds a call's failures while the server answers others; then, and not before
	// giveUpAfter, its series is given up.
	maxFaults = 12
	// giveUpAfter is how long the server keeps an event.
	giveUpAfter = time.Hour
	// heldFor is how long a 403 is held for a call allowed before: the authorizer may fail, or the
	// role may be under replacement. Likewise after trouble until a call is accepted: a
	// kube-apiserver refuses every call until its roles are loaded.
	heldFor = 5 * time.Minute
)

// reply is a judged answer with what it came with.
type reply struct {
	judged
	stored *eventsv1.Event
	err    error
	now    time.Time
}

// answered books the answer to the call of a series.
func (c *core) answered(j job, a reply) {
	a.now = c.clock(a.now)
	s := j.series
	s.inflight = false
	if !a.unsent {
		c.count.Calls[string(j.call.kind)]++
	}
	a.verdict = c.reconsider(j, a)
	switch a.verdict {
	case verdictOK:
		c.succeeded(j, a)
	case verdictMissing:
		c.queue.heard(j.place, a.now)
		c.missing(s, a.now)
	case verdictConflict:
		c.queue.heard(j.place, a.now)
		s.st.becomeUnread()
		c.count.Retries[a.reason]++
	case verdictRefused:
		c.queue.refused(j.place, a.now)
		c.refused(j, a)
	case verdictStopped:
		c.queue.stopped(j.place, a.now)
		if a.perhaps {
			s.st.doubtful(j.call)
		}
	case verdictHeld:
		c.held(j.place, a)
	default:
		if a.perhaps {
			s.st.doubtful(j.call)
		}
		c.failed(j.place, a)
	}
	c.settle(s, a.now)
	c.evict(a.now)
	c.wake()
}

// succeeded books a call that was carried out.
func (c *core) succeeded(j job, a reply) {
	s := j.series
	c.lastErr = nil
	c.grant(j.place, a.now)
	if j.call.kind == callRead {
		c.queue.heard(j.place, a.now)
		c.hasRead(s, a.stored, a.now)
		return
	}
	if c.queue.server.failing() {
		c.note(func(l klog.Logger) { l.Info("Event recording resumed") })
	}
	c.queue.succeeded(j.place, a.now)
	c.queue.renew(&s.ticket)
	c.hasWritten(j, a)
}

// grant books that a role allows a call. Few roles are remembered: what is forgotten is learnt
// again by the next success.
func (c *core) grant(p place, now time.Time) {
	role := grant{p.namespace, p.kind}
	opened, ok := c.granted[role]
	if !ok && len(c.granted) >= 2*c.opts.MaxSeries {
		clear(c.granted)
	}
	if !ok { // the name is a part of the strings of a series, which it outlives
		role.namespace = strings.Clone(role.namespace)
	}
	if !c.queue.holding(p).IsZero() {
		opened = now
	}
	c.granted[role] = opened
}

// hasWritten books a create or patch.
func (c *core) hasWritten(j job, a reply) {
	s := j.series
	r := c.rosters[s.key.source]
	before := s.st.stored
	tokens := false
	if max(j.call.count, before) > 1 { // tokens for the writes of loops
		bucket := hash(objectOf(&s.key.regarding))
		c.limits.tokens.allow(bucket, a.now)
		if before <= 1 {
			c.limits.tokens.allow(bucket, a.now) // and the create
		}
		tokens = c.limits.tokens.has(bucket, a.now)
	}
	c.acknowledge(s.st.done(written{
		call:    j.call,
		version: a.stored.ResourceVersion,
		now:     a.now,
		jitter:  rand.Float64(),
		tokens:  tokens,
	}, c.opts))
	if s.st.stored > 1 && (before <= 1 || !s.listed) && !s.left {
		r.add(s, a.now)
	}
	if s.st.hurried() {
		c.table.hurry(s)
	}
	s.trouble = nil
	s.seen = r.shared
}

// hasRead books the content of an object unknown before.
func (c *core) hasRead(s *series, e *eventsv1.Event, now time.Time) {
	r := c.rosters[s.key.source]
	switch {
	case !r.same(e, s): // another's object has the name
		c.rename(s, now)
		return
	case s.st.untouched():
		c.restored(s, look(e), now)
		return
	}
	f := look(e)
	if s.st.sent == 0 && s.st.version != f.version {
		r.shared++
		// That process may have written the roster, too.
		r.want(now.Add(rosterRemovals))
		s.st.writes = max(s.st.writes, firstWrites) // two processes need not hurry
	}
	s.seen = r.shared
	c.acknowledge(s.st.merge(f, now))
}

func (c *core) acknowledge(n int64) {
	c.count.Acknowledged += n
	c.count.Unsent -= n
}

// refused books that the server never takes this call.
func (c *core) refused(j job, a reply) {
	s := j.series
	if j.call.kind == callRead && s.st.untouched() { // of an earlier process
		c.rename(s, a.now)
		return
	}
	lost := s.st.refused(a.now, c.opts)
	c.count.Unsent -= lost
	c.count.drop(DropRejected, lost)
	c.count.Rejected[a.reason]++
	s.trouble = nil
	c.queue.renew(&s.ticket)
	c.complain(j.event, a)
}

// reconsider corrects a verdict by knowledge beyond the answer.
func (c *core) reconsider(j job, a reply) verdict {
	s := j.series
	switch {
	case a.verdict == verdictMissing && j.call.kind == callCreate:
		return verdictRefused
	case a.verdict == verdictRefused && a.reason == string(metav1.StatusReasonForbidden):
		return c.forbidden(j, a)
	case a.verdict == verdictConflict:
		return c.conflict(j, a)
	case a.verdict == verdictFault:
		t := s.fail(a.now, c.queue.answers)
		if t.blamed >= maxFaults && a.now.Sub(t.since) >= giveUpAfter {
			return verdictRefused // the server fails at this series repeatedly and takes others
		}
	}
	return a.verdict
}

// forbidden returns the reaction to an answer of 403. Where a role is known to allow the call, it
// holds the calls of its kind in the namespace, as the role may be under replacement. Where others
// of the kind were taken since, or were a while ago after such a 403, a policy denies this object:
// that alone waits, and is given up.
func (c *core) forbidden(j job, a reply) verdict {
	role := grant{j.place.namespace, j.place.kind}
	holding := c.queue.holding(j.place)
	open := holding.IsZero()
	since := j.series.forbid(a.now, c.queue.answers)
	opened, granted := c.granted[role]
	one := since.Before(a.now) || a.now.Sub(opened) < heldFor
	switch {
	case !open && a.now.Sub(holding) < heldFor:
		return verdictHeld
	case open && c.queue.server.failing():
		return verdictHeld
	case !open || !granted:
		delete(c.granted, role)
		c.queue.unhold(j.place)
		return verdictRefused
	case !one:
		return verdictHeld
	case a.now.Sub(since) < heldFor:
		return verdictTrouble
	}
	return verdictRefused
}

// conflict returns the reaction to an answer of 409: the object is read at once, the first time.
// Then it waits alone, unless another object of the namespace fails, too: then all patches there
// wait.
func (c *core) conflict(j job, a reply) verdict {
	t := j.series.fail(a.now, c.queue.answers)
	again := t.failures > 1
	several := again && c.queue.othersFail(j.place) || !c.queue.holding(j.place).IsZero()
	switch {
	case t.blamed >= maxFaults:
		return verdictRefused
	case several && j.call.kind != callCreate:
		j.series.st.becomeUnread()
		return verdictHeld
	case again:
		j.series.st.becomeUnread()
		return verdictFault
	}
	return verdictConflict
}

// failed books a call to be made again, and logs the first failure of a scope.
func (c *core) failed(at place, a reply) {
	c.lastErr = a.err
	c.count.Retries[a.reason]++
	on := c.queue.failed(at, failure{now: a.now, after: a.after, everywhere: a.everywhere})
	c.note(func(l klog.Logger) {
		if !on.news || on.scope == "object" {
			l = l.V(4)
		}
		l.Info("Event recording paused", "scope", on.scope, "namespace", at.namespace,
			"object", at.object.name, "why", a.reason, "failures", on.failures, "err", a.err)
	})
}

// held books that a kind of calls in a namespace waits.
func (c *core) held(at place, a reply) {
	c.lastErr = a.err
	c.count.Retries[a.reason]++
	first := c.queue.holding(at).IsZero()
	c.queue.held(at, failure{now: a.now, after: a.after})
	c.note(func(l klog.Logger) {
		if !first {
			l = l.V(4)
		}
		l.Info("Event recording paused", "scope", "call", "namespace", at.namespace,
			"call", at.kind, "why", a.reason, "err", a.err)
	})
}

// missing books that a series has no object.
func (c *core) missing(s *series, now time.Time) {
	before := s.st.stored
	fresh := s.st.untouched()
	s.st.becomeAbsent()
	switch {
	case s.left, fresh: // named by a roster
		c.rename(s, now)
	case before > 0:
		c.count.turn("renewed")
	}
}

// rename lets a series begin an object of its own: that of its name is another's, or gone.
func (c *core) rename(s *series, now time.Time) {
	if s.left {
		s.st.becomeDone()
		return
	}
	c.rosters[s.key.source].remove(s, now)
	s.st.becomeAbsent()
	s.renamed(c.newName(s, now))
}

// complain logs the server's refusals at default verbosity, for each reason once in a while: a
// missing verb in a role must show in the log.
func (c *core) complain(e *eventsv1.Event, a reply) {
	if !c.tells(a.reason, a.now) {
		return
	}
	c.note(func(l klog.Logger) {
		l.Error(a.err, "The server refuses events; they are lost, and counted as dropped",
			"why", a.reason, "event", klog.KObj(e), "reason", e.Reason, "nextMessageIn", messageEvery)
	})
}

// messageEvery is the time in which lost events are logged once for each reason.
const messageEvery = 10 * time.Minute

// tells reports whether the message for a reason is due, and books that it is logged.
func (c *core) tells(reason string, now time.Time) bool {
	if !now.After(c.silent[reason]) {
		return false
	}
	c.silent[reason] = now.Add(messageEvery)
	return true
}

// note keeps a message until the lock is free: a logger is code of others.
func (c *core) note(log func(klog.Logger)) { c.notes = append(c.notes, log) }
