// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// lastHeard is what the last reply of the runtime about a pod has told: it says how long the pod may be left alone, as podPace says how soon it may be read
// again. A generator that knows that the cache does not show what the last reply did looks again within the time for which it has known that, because
// its delays double; one whose read of the pod has failed, within the delay of failures.
type lastHeard struct {
	open    bool        // the cache has not been seen to show what the last reply did, without an error
	sure    time.Time   // when the cache last was seen to do so while no claim was in doubt
	reply   []pleg.Item // what that showed
	listed  []pleg.Item // what the last list showed, which one that tells only differences may leave out
	begun   time.Time   // when the last reply began
	replied time.Time   // and ended
	failing bool        // the last thing heard of the pod is that a read of it has failed
	failed  time.Time   // when the last one ended
	fails   int         // failures since sure that may have made the delay of failures grow
}

// answered notes a reply, or that a read has failed. What came up since the read began, or another one that began later, makes it worthless.
func (x *podPace) answered(items []pleg.Item, begun, now time.Time, err error) {
	o := &x.last
	if o.failing = err != nil; o.failing {
		if o.fails == 0 || begun.Sub(o.failed) >= retryBase {
			o.fails++
		}
		o.open, o.failed = false, now
		return
	}
	if begun.Before(o.begun) {
		o.replied = now
		return
	}
	o.open, o.reply, o.begun, o.replied = true, items, begun, now
}

// occupied says that a list is under way, which may serve any pod, or that every worker is busy.
func (b *ledger) occupied() bool { return b.listing > 0 || len(b.inflight) >= b.workers }

// lookOverdue checks that no pod has been left alone for too long. It is called when the generator's loop waits for something to happen.
func (b *ledger) lookOverdue(now time.Time) {
	if b.lied() || b.occupied() {
		return
	}
	for uid, x := range b.pace.pods {
		if b.inflight[uid] == 0 {
			b.lookOverdueAt(uid, x, now)
		}
	}
}

func (b *ledger) lookOverdueAt(uid cache.UID, x *podPace, now time.Time) {
	o := &x.last
	switch {
	case o.failing:
		if d := now.Sub(o.failed); d > grown(retryBase, o.fails-1, retryMax) && b.failed(uid) {
			b.fail("late", "pod %s has not been read again since %v, after %d reads have failed", uid, d, o.fails)
		}
	case !o.open:
	case !x.caused.Before(o.begun):
		o.open = false // it may be known from a claim that the reply is old
	case showsSame(b.shows(uid), o.reply) && !b.failed(uid):
		if o.open = false; len(x.doubts) == 0 {
			o.sure, o.fails = now, 0
		}
	case now.Sub(o.replied) > o.replied.Sub(o.sure)+rereadBase:
		b.fail("late", "pod %s has not been read again since %v; the last reply showed %v, the cache does not, and that has not been known for longer than %v",
			uid, now.Sub(o.replied), o.reply, now.Sub(o.sure))
	}
}

// lookNeglected checks that a read has begun for somebody who waits for one that begins after t: at once, unless a list is under way or every worker is busy.
func (b *ledger) lookNeglected(uid cache.UID, t, waits time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.podPace(uid)
	d := time.Since(latest(waits, t, x.caused, b.opened)) // who came last is served by a read that begins later than that
	if !b.pace.on || b.closed || d <= 0 || b.inflight[uid] > 0 || b.occupied() {
		return
	}
	if !x.started.After(t) && !b.pace.begun.After(t) {
		b.fail("late", "somebody has been waiting for pod %s since %v, and it has not been read", uid, d)
	}
}

// showsSame says that a status shows what a reply did; a state that is not known says nothing.
func showsSame(shown, reply []pleg.Item) bool {
	if len(shown) != len(reply) {
		return false
	}
	for _, it := range reply {
		if p := phaseIn(shown, it.ID); p != it.Phase && p != pleg.PhaseUnknown && it.Phase != pleg.PhaseUnknown {
			return false
		}
	}
	return true
}
