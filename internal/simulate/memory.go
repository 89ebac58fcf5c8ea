// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// callSpan is one of the agent's own calls: from when until when it was under way, the end zero while
// it is, what it names, empty if it makes something, and whether it has failed.
type callSpan struct {
	begun, ended time.Time
	id           string
	failed       bool
}

// readSpan is a read that did not fail: when its first half began, which listed the pod, when its last
// one did, and when that ended.
type readSpan struct{ from, last, ended time.Time }

// readOf returns the latest of the reads that cover a pod and have ended, among those that began by a time.
func (b *ledger) readOf(uid cache.UID, by time.Time) (latest readSpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, reads := range [][]readSpan{b.podOK[uid], b.listsOK} {
		for _, read := range reads {
			if !read.last.After(by) && !read.last.Before(latest.last) {
				latest = read
			}
		}
	}
	return latest
}

// lookMemory checks a status as of a time that may have been given without a read that began then, and notes which read it is from.
func (o *oracle) lookMemory(uid cache.UID, p *seen, at time.Time, items []pleg.Item) {
	if at.Equal(p.asOf) {
		return // a read that began in that instant has not ended in it
	}
	read := o.ledger.readOf(uid, at)
	if p.read = read.from; !at.After(read.last) {
		return
	}
	if at.Equal(time.Now()) && max(o.period, o.system.Stats().RelistPeriod) <= o.limits.base {
		o.fail("remembered", "pod %s is fresh without a read, and the stream has earned no trust", uid)
	}
	o.lookRemembered(uid, at, read, items)
}

// lookRemembered checks that a pod could be answered for at a time without a read: that since the last one a stream has been open all the time, no call of the
// agent's own has been under way, none that has failed may work yet, and nothing has been told that the status does not show, or that came after that read.
func (o *oracle) lookRemembered(uid cache.UID, at time.Time, latest readSpan, items []pleg.Item) {
	b, read := o.ledger, latest.last
	b.mu.Lock()
	defer b.mu.Unlock()
	open := slices.ContainsFunc(b.listened, func(s [2]time.Time) bool {
		return s[0].Before(read) && (s[1].IsZero() || !s[1].Before(at))
	})
	switch {
	case b.lied():
		return
	case !b.pace.settings.tells:
		o.fail("remembered", "pod %s is fresh as of %s without a read, and the agent does not tell of its calls", uid, o.when(at))
	case !open:
		o.fail("remembered", "pod %s is fresh as of %s without a read since %s, and no stream was open all the time", uid, o.when(at), o.when(read))
	}
	if own := b.own[uid]; own != nil {
		for _, s := range own.spans {
			if s.begun.Before(at) && (s.ended.IsZero() || !s.ended.Before(read)) {
				o.fail("remembered", "pod %s is fresh as of %s without a read since %s, and a call of the agent's own was under way from %s to %s",
					uid, o.when(at), o.when(read), o.when(s.begun), o.when(s.ended))
			}
			if s.failed && s.ended.Before(at) && (s.id == "" || phaseIn(items, s.id) != pleg.PhaseRemoved) {
				o.fail("remembered", "pod %s is fresh as of %s without a read since %s, and a call about %q has failed at %s, which may work yet",
					uid, o.when(at), o.when(read), s.id, o.when(s.ended))
			}
		}
	}
	if id, phase := b.truth.toldBetween(uid, items, latest, at); id != "" {
		o.fail("remembered", "pod %s is fresh as of %s without a read since %s, and meanwhile it was told that %s is %v", uid, o.when(at), o.when(read), id, phase)
	}
}

// toldBetween returns an ID of a pod of which a claim told, truly, after a read began and before a time, that it is further than shown, or what it became
// after that read had ended.
func (t *Truth) toldBetween(pod cache.UID, shown []pleg.Item, read readSpan, before time.Time) (id string, phase pleg.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.pods[pod] {
		for p, first := range l.first {
			phase := pleg.Phase(p)
			told := first.After(read.last) && first.Before(before) && l.reached(phase, first)
			if told && (phaseIn(shown, l.id) < phase || !l.reached(phase, read.ended)) {
				return l.id, phase
			}
		}
	}
	return "", 0
}

// reached says that an ID had come to a phase by a time.
func (l *life) reached(phase pleg.Phase, by time.Time) bool {
	return slices.ContainsFunc(l.steps, func(s step) bool { return s.phase >= phase && !s.at.After(by) })
}

// earliest returns the earlier of two times.
func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// answers says that the generator may answer waiters without a read.
func (o *oracle) answers() bool {
	return o.ledger != nil && o.ledger.pace.settings != nil && o.ledger.pace.settings.answers
}
