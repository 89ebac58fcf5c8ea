// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Silent changes cost trust: once a read has found a change without an event, although a stream was
// up, the relist period is the base again.

// debt is a silent change, to be paid with trust.
type debt struct {
	pod   cache.UID
	id    string
	phase pleg.Phase
	was   pleg.Phase // in the cache at that time
	at    time.Time  // of the change
	open  time.Time  // the last time before the cache, a list or a read has shown the change
	found bool       // the cache, a list or a read has shown the change
	shown time.Time  // the first time with the change in the cache; zero before
}

// silent notes a change by others than the agent without an event of its own.
func (b *boundary) silent(pod cache.UID, id string, phase pleg.Phase) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := phaseIn(b.shows(pod), id)
	if was == phase {
		return // the cache has not shown it otherwise: of a sandbox that recovers for a moment no look tells
	}
	known := phase == pleg.PhaseCreated || was != pleg.PhaseRemoved
	since := b.confirmed(pod)
	// Reads fail, and the last list agrees; a read under way may have looked before the list. Lists
	// agree with a pod's record, in which IDs stay whose status cannot be read and that the cache and
	// lists may lack.
	x := b.podPace(pod)
	agrees := b.inflight[pod] == 0 && x.unsure == nil && showsSame(x.listed, b.shows(pod))
	if b.fails(pod) && agrees && !b.truth.holdsUnreadable(pod) {
		since = b.listOK
	}
	if b.unread(pod) {
		return // the status is of an earlier generator: this one has no record of the pod until its first read
	}
	if was == pleg.PhaseUnknown && phase != pleg.PhaseRemoved {
		return // nobody knows when an ID came so far; that its state was lost is a debt of its own
	}
	if b.touched[id].After(latest(b.podWhole[pod], b.listOK)) {
		return // the next read or list decides about what the agent's call may have done; a peek does not
	}
	// Until a look confirms an ID after the stream is up, the ID may have changed while the stream was
	// down.
	if b.pace.on && known && b.pace.settings.roomy() && b.listening(since) {
		b.debts = append(b.debts, debt{
			pod:   pod,
			id:    id,
			phase: phase,
			was:   was,
			at:    time.Now(),
			open:  time.Now(),
		})
	}
}

// silentMost is after how many creations, and removals, without a word a generator may take a
// runtime for one that announces none, until the runtime announces one.
const silentMost = 3

// unspoken reports whether the runtime may be taken for one that announces no changes such as a
// debt, at the time of the debt.
func (b *boundary) unspoken(d *debt) bool {
	if d.phase != pleg.PhaseCreated && d.phase != pleg.PhaseRemoved {
		return false
	}
	told := b.firstTold[d.phase]
	return (told.IsZero() || told.After(d.at)) && b.truth.wordless(d.phase) > silentMost
}

// hearing reports whether the stream has been connected since a time.
func (b *boundary) hearing(since time.Time) bool {
	p := &b.pace
	return !p.connected.IsZero() && !p.connected.After(since)
}

// listening reports whether the generator has known of the stream since before a look began. The
// runtime connects a stream a moment before the generator's loop hears of it: a list that begins in
// between is from before for the generator, and what changes next may be unheard. The excuse ends
// with the next look that confirms the pod.
func (b *boundary) listening(began time.Time) bool {
	heard := b.hearsOf(b.pace.connected)
	return b.hearing(began) && began.After(heard.Add(heardAfter))
}

// foundBy notes that a read has shown items of a pod, or the list within a read whose statuses fail
// or hang: the generator may judge a change then, although the cache does not show the change yet.
func (b *boundary) foundBy(pod cache.UID, items []pleg.Item) {
	for i := range b.debts {
		d := &b.debts[i]
		d.found = d.found || d.pod == pod && phaseIn(items, d.id) == d.phase
	}
}

// lookDebts checks that the silent changes in the cache have cost trust. It runs when the
// generator's loop waits for an input.
func (b *boundary) lookDebts(now time.Time) {
	grace := b.pace.settings.grace
	kept := b.debts[:0]
	for _, d := range b.debts {
		x := b.podPace(d.pod)
		listed := phaseIn(x.listed, d.id) == d.phase || x.unsure != nil && phaseIn(*x.unsure, d.id) == d.phase
		d.found = d.found || listed || !d.shown.IsZero() || phaseIn(b.shows(d.pod), d.id) == d.phase
		if !d.found {
			d.open = now // where reads of the pod fail, a list finds the change, and a later one may miss it
		}
		_, phase := b.truth.phaseOf(d.id)
		shows := phaseIn(b.shows(d.pod), d.id)
		if shows == pleg.PhaseRemoved && b.fails(d.pod) && b.truth.unreadable(d.id) {
			shows = d.was // a status may lack what cannot be read, for as long as the error stands beside
		}
		switch {
		case b.touched[d.id].After(d.at.Add(-2 * grace)):
			continue // a call of the agent's own may have done it
		case !b.hearing(d.at), phase != d.phase && d.shown.IsZero(), b.truth.announced(d):
			continue // not missed, or not seen
		case b.unspoken(&d):
			continue
		case d.shown.IsZero() && shows == d.phase:
			d.shown = now
		case !d.shown.IsZero() && b.pace.baseAt.After(d.open):
			continue // paid
		case !d.shown.IsZero() && b.own[d.pod] != nil && b.own[d.pod].calls > 0:
			d.shown = now // perhaps the effect of the call
		case !d.shown.IsZero() && now.Sub(d.shown) > grace+2*b.pace.settings.base:
			b.fail(
				"trust",
				"pod %s: a read has found that %s is %v, which nobody announced, and %v later the period has not been the base",
				d.pod,
				d.id,
				d.phase,
				now.Sub(d.shown),
			)
			continue
		}
		kept = append(kept, d)
	}
	b.debts = kept
}

// announced reports whether a claim has reported the phase of a debt, or a later phase, be it from
// before the creation: the call that makes an ID may return after the events of its life. For an
// unknown state, any later claim counts, and any claim beyond the cache.
func (t *Truth) announced(d debt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[d.id]
	if l == nil || d.phase != pleg.PhaseUnknown {
		return l == nil || l.told>>d.phase != 0 || t.early[d.id] >= d.phase
	}
	return !l.heard.IsZero() && !l.heard.Before(d.at) || l.told>>(d.was+1) != 0
}
