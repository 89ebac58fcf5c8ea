// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// lastHeard is what the last reply of the runtime about a pod has told: it says how long the pod
// may be left alone, as podPace says how soon it may be read again. A generator that knows that the
// cache does not show what the last reply did looks again within the time for which it has known
// that, because its delays double; one whose read of the pod has failed, within the delay of
// failures.
type lastHeard struct {
	open    bool        // the cache has not been seen to show what the last reply did, without an error
	sure    time.Time   // when the cache last was seen to do so while no claim was in doubt, nor a state
	reply   []pleg.Item // what that showed
	listed  []pleg.Item // what the last list showed, which one that tells only differences may leave out
	begun   time.Time   // when the last reply began
	replied time.Time   // and ended
	failing bool        // the last thing heard of the pod is that a read of it has failed
	failed  time.Time   // when the last one ended
	tried   time.Time   // and began
	fails   int         // failures since sure that may have made the delay of failures grow

	first    map[string]time.Time // when a reply first showed an ID
	saidFrom time.Time            // when the last read of the pod began that did not fail
	crossing []pleg.Item          // what a list showed that ended while the pod was being read
	lapped   bool                 // one did
	crossed  time.Time            // when a read ended that such a list contradicts; zero if none, or if a read has begun since
}

// listEnded notes the end of a list, which may be while the pod is being read, or after a read of
// it that began and ended while the list was on. Cached is what the cache shows of it.
func (b *ledger) listEnded(x *podPace, reading bool, cached []pleg.Item, begun, now time.Time) {
	o := &x.last
	defer o.showed(o.listed, now)
	switch {
	case reading && x.started.Before(now): // a list that agrees with the cache wants nothing
		o.crossing, o.lapped = o.listed, !showsSame(cached, o.listed)
	case o.saidFrom.After(begun) && x.ended.Before(now) && o.lacks(cached, begun):
		o.crossing, o.crossed = o.listed, now
		b.cause(x, now)
	default:
		o.crossed = time.Time{} // this list comes after the one that showed the pod otherwise
	}
}

// lacks says that the last list does not show an ID that the cache shows and that was first shown
// after that list had begun.
func (o *lastHeard) lacks(cached []pleg.Item, begun time.Time) bool {
	return slices.ContainsFunc(cached, func(it pleg.Item) bool {
		return o.first[it.ID].After(begun) && phaseIn(o.listed, it.ID) == pleg.PhaseRemoved
	})
}

// puzzled says that of the last reply and the last list one knows the state of an ID and the other
// does not: the pod is read again, with growing delay, until they agree.
func (o *lastHeard) puzzled() bool {
	return slices.ContainsFunc(o.listed, func(l pleg.Item) bool {
		now := phaseIn(o.reply, l.ID)
		return now != pleg.PhaseRemoved && (now == pleg.PhaseUnknown) != (l.Phase == pleg.PhaseUnknown)
	})
}

// showed notes which IDs a reply was the first to show.
func (o *lastHeard) showed(items []pleg.Item, now time.Time) {
	for _, it := range items {
		if _, ok := o.first[it.ID]; !ok {
			if o.first == nil {
				o.first = make(map[string]time.Time)
			}
			o.first[it.ID] = now
		}
	}
}

// crosses notes the end of a read of the pod: if a list has ended meanwhile that shows it
// otherwise, nobody can tell which of the two looked last.
func (b *ledger) crosses(x *podPace, items []pleg.Item, now time.Time, err error) {
	o := &x.last
	if err == nil {
		o.saidFrom = x.started
		o.showed(items, now)
	}
	if o.crossed = (time.Time{}); o.lapped && err == nil && !showsSame(items, o.crossing) {
		o.crossed = now
		b.cause(x, now)
	}
}

// begins notes that a read of the pod, or a list, has begun, which will tell.
func (o *lastHeard) begins() { o.crossing, o.lapped, o.crossed = nil, false, time.Time{} }

// answered notes a reply, or that a read has failed. What came up since the read began, or another
// one that began later, makes it worthless.
func (x *podPace) answered(items []pleg.Item, begun, now time.Time, err error) {
	o := &x.last
	if err != nil {
		if o.fails == 0 || begun.Sub(o.failed) >= retryBase {
			o.fails++
		}
		o.failing, o.open, o.failed, o.tried = true, false, now, begun
		return
	}
	// A list that began before the read that failed is no reason to try again at once: lists and
	// failures would follow upon each other without end. The delay of failures bounds it.
	o.failing = o.failing && begun.Before(o.tried)
	if begun.Before(o.begun) {
		o.replied = now
		return
	}
	o.open, o.reply, o.begun, o.replied = true, items, begun, now
}

// lookOverdue checks that no pod has been left alone for too long. It is called when the
// generator's loop waits for something to happen.
func (b *ledger) lookOverdue(now time.Time) {
	if b.lied() {
		return
	}
	for uid, x := range b.pace.pods {
		what := ""
		if b.inflight[uid] == 0 && now.After(b.settled(uid)) {
			what = b.overdue(uid, x, now)
		}
		if what == "" {
			x.place = place{}
		} else if !b.mustWait(&x.place, uid, now) {
			b.fail("late", "pod %s has not been read again %s", uid, what)
		}
	}
}

// overdue says why a pod should have been read again by now, if so.
func (b *ledger) overdue(uid cache.UID, x *podPace, now time.Time) string {
	o := &x.last
	if d := now.Sub(o.crossed); !o.crossed.IsZero() && !o.failing && d > o.crossed.Sub(o.sure)+rereadBase {
		return fmt.Sprintf("since %v; the last read contradicts a list that ended meanwhile, which showed %v", d, o.crossing)
	}
	switch {
	case o.failing:
		if d := now.Sub(o.failed); d > grown(retryBase, o.fails-1, retryMax) && b.failed(uid) {
			return fmt.Sprintf("since %v, after %d reads have failed", d, o.fails)
		}
	case !o.open:
	case !x.caused.Before(o.begun):
		o.open = false // it may be known from a claim that the reply is old
	case showsSame(b.shows(uid), o.reply) && !b.failed(uid):
		if o.open = false; now.After(x.doubted.Add(b.pace.settings.grace)) && !o.puzzled() {
			o.sure, o.fails = now, 0
		}
	case now.Sub(o.replied) > o.replied.Sub(o.sure)+rereadBase:
		return fmt.Sprintf("since %v; the last reply showed %v, the cache does not, and that has not been known for longer than %v",
			now.Sub(o.replied), o.reply, now.Sub(o.sure))
	}
	return ""
}

// lookNeglected checks that a read has begun for somebody who waits for one that begins after t: at
// once, or when it is the pod's turn.
func (b *ledger) lookNeglected(at *place, uid cache.UID, t, waits time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.podPace(uid)
	d := time.Since(latest(waits, t, x.caused, b.opened)) // who came last is served by a read that begins later than that
	if !b.pace.on || b.closed || d <= 0 || b.inflight[uid] > 0 {
		return
	}
	if x.started.After(x.doubted) && time.Since(x.doubted) < 2*b.pace.settings.grace {
		return // a read that contradicts a claim is made again with growing delay until a grace has passed
	}
	if !x.started.After(t) && !b.pace.begun.After(t) && !b.mustWait(at, uid, time.Now()) {
		b.fail("late", "somebody has been waiting for pod %s since %v, and it has not been read", uid, d)
	}
}

// showsSame says that a status shows what a reply did: a state that the runtime does not know is
// shown like any other.
func showsSame(shown, reply []pleg.Item) bool {
	if len(shown) != len(reply) {
		return false
	}
	for _, it := range reply {
		if phaseIn(shown, it.ID) != it.Phase {
			return false
		}
	}
	return true
}
