// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// span is from when until when something was under way; the end is zero while it is.
type span struct{ begun, ended time.Time }

// readOf returns when the latest of the reads began that cover a pod, have ended and did not fail, among those that began by a time: from is when its first half
// did, which listed the pod, and last when its last one did.
func (b *ledger) readOf(uid cache.UID, by time.Time) (from, last time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, reads := range [][]span{b.podOK[uid], b.listsOK} {
		for _, read := range reads {
			if !read.ended.After(by) && !read.ended.Before(last) {
				from, last = read.begun, read.ended
			}
		}
	}
	return from, last
}

// lookMemory checks a status as of a time that may have been given without a read that began then, and notes which read it is from.
func (o *oracle) lookMemory(uid cache.UID, p *seen, at time.Time, items []pleg.Item) {
	if at.Equal(p.asOf) {
		return // a read that began in that instant has not ended in it
	}
	var last time.Time
	if p.read, last = o.ledger.readOf(uid, at); !at.After(last) {
		return
	}
	if at.Equal(time.Now()) && max(o.period, o.system.Stats().RelistPeriod) <= o.limits.base {
		o.fail("remembered", "pod %s is fresh without a read, and the stream has earned no trust", uid)
	}
	o.lookRemembered(uid, at, last, items)
}

// lookRemembered checks that a pod could be answered for at a time without a read: that since the last one a stream has been open all the time, no call of the
// agent's own has been under way, and nothing has been told that the status does not show.
func (o *oracle) lookRemembered(uid cache.UID, at, read time.Time, items []pleg.Item) {
	b := o.ledger
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
		}
	}
	if id, phase := b.truth.toldBetween(uid, items, read, at); id != "" {
		o.fail("remembered", "pod %s is fresh as of %s without a read since %s, and meanwhile it was told that %s is %v", uid, o.when(at), o.when(read), id, phase)
	}
}

// toldBetween returns an ID of a pod of which a claim told, truly, after one time and before another, that it is further than shown.
func (t *Truth) toldBetween(pod cache.UID, shown []pleg.Item, after, before time.Time) (id string, phase pleg.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.pods[pod] {
		for p, first := range l.first {
			phase := pleg.Phase(p)
			told := first.After(after) && first.Before(before)
			if told && l.reached(phase, first) && phaseIn(shown, l.id) < phase {
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
