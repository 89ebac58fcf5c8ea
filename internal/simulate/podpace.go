// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// podPace is why one pod may be read:
//
//   - at once, after something new: a change, a claim, a waiter, a request, a read that may have looked before that, a list that has overtaken a read;
//   - again with the growing delays of ladders, while it is not known how it is or until it has gone, and never once it is known and not going;
//   - after a failure with the growing delay of failures, or with the next list that succeeds.
//
// Nothing in here is told by the generator.
type podPace struct {
	caused    time.Time   // by the last thing new
	changed   time.Time   // the runtime's last change of it that was taken into account
	later     []time.Time // what somebody will want
	doubts    []time.Time // when claims told of it, until the grace has passed
	wants     bool        // neither a read nor a list has begun since
	credit    bool        // a read may begin at once
	started   time.Time   // of the last read
	begun     time.Time   // likewise, or of the list on which it builds
	builds    bool        // it may build on one: that ended in the instant in which it began, or no worker may have been free since
	ended     time.Time
	call      <-chan struct{} // what ends its context, which all calls of one read have in common
	clear     bool            // it began later than what was read before was known
	behind    time.Time       // as of when the read before was, if this one began in the instant in which that ended; else zero
	place     place           // while it is overdue
	asked     time.Time       // when somebody last wanted it read
	eager     bool            // it had something new to look for
	overtaken time.Time       // start of the first read since the last thing new that a list has overtaken; zero if none

	fails  int       // reads in a row that failed, of those that had waited for the delay after the one before
	early  bool      // the last read did not wait for it
	shared bool      // reads have shown an ID of it of another pod too, and none has read its statuses since: it may be taken for gone in between, which ends the row
	maybe  bool      // one has failed that a list has overtaken, so that its error may matter to nobody
	open   bool      // an error may be in the cache, or a reinspection unanswered, so that a list that succeeds gives it another try
	closed time.Time // when that ended

	shown []pleg.Item // by the last read, of a runtime that lies
	took  []cache.UID // the pods from which its last list has taken something, which may be believed only when its statuses have been read or have failed
	last  lastHeard
	ladders
}

func (b *ledger) podPace(uid cache.UID) *podPace {
	x := b.pace.pods[uid]
	if x == nil {
		x = &podPace{last: lastHeard{sure: time.Now()}}
		if b.pace.on {
			b.pace.pods[uid] = x
		}
	}
	return x
}

// cause notes that there is reason to read a pod.
func (x *podPace) cause(at time.Time) {
	if at.After(x.caused) {
		x.caused = at
	}
	x.wants, x.credit, x.overtaken, x.ladders = true, true, time.Time{}, ladders{}
}

// succeed notes the end of a row of failures, after which looks after what is going start again.
func (x *podPace) succeed() {
	if x.fails > 0 || x.maybe {
		x.fails, x.maybe, x.ladders = 0, false, ladders{}
	}
}

// wanted notes that somebody wants a read of a pod that begins after a time, which may lie ahead.
func (b *ledger) wanted(uid cache.UID, after time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, now := b.podPace(uid), time.Now()
	if after.After(now) {
		x.later = append(x.later, after)
		return
	}
	x.cause(now)
	x.asked = now
}

// reinspected notes that somebody wants the statuses of a pod.
func (b *ledger) reinspected(uid cache.UID) {
	b.wanted(uid, time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.podPace(uid).open = true
}

// foldCauses takes into account what has come up by now.
func (b *ledger) foldCauses(uid cache.UID, x *podPace, now time.Time) {
	if at := b.truth.moved(uid); at.After(x.changed) {
		x.changed = at
		x.cause(at)
	}
	kept := x.later[:0]
	for _, at := range x.later {
		if at.After(now) {
			kept = append(kept, at)
			continue
		}
		x.cause(at)
		x.asked = at
	}
	x.later = kept
}

// claimed notes a claim about a pod.
func (b *ledger) claimed(uid cache.UID, now time.Time) {
	if b.pace.on && uid != "" {
		x := b.podPace(uid)
		x.cause(now)
		if n := len(x.doubts); n == 0 || x.doubts[n-1].Before(now) {
			x.doubts = append(x.doubts, now)
		}
	}
}

// atRestFor says that a read at rest has settled all there was to know of a pod, and none is under way.
func (b *ledger) atRestFor(uid cache.UID, now time.Time) bool {
	if !b.pace.on || uid == "" || b.lied() || b.listing > 0 || b.inflight[uid] > 0 || b.truth.restless(uid) {
		return false
	}
	x := b.podPace(uid)
	b.foldCauses(uid, x, now)
	return !x.open && !x.credit && x.clear && latest(x.begun, b.pace.applied).After(x.caused.Add(b.pace.settings.grace))
}

// claimedLate notes a claim about a pod at rest of an ID that has gone or never was: one read settles
// that it was not created, started or ended, and none that it was removed.
func (b *ledger) claimedLate(uid cache.UID, phase pleg.Phase) {
	if phase != pleg.PhaseRemoved {
		x := b.podPace(uid)
		x.wants, x.credit = true, true
	}
}

// resolve notes that a read has begun: what claims have told that reads do not bear out is given up with the first that begins after the grace, and
// then it starts anew what there is to know of the pod.
func (x *podPace) resolve(begun time.Time, grace time.Duration) {
	for len(x.doubts) > 0 && begun.After(x.doubts[0].Add(grace)) {
		x.doubts, x.ladders = x.doubts[1:], ladders{}
	}
}

// readBegins checks that a read of a pod has a reason. The statuses that follow a listing of the pod are part of its read: those that are read in the
// instant in which a listing of nothing ended need not be, because they may build on a list.
func (b *ledger) readBegins(uid cache.UID, statuses bool, call <-chan struct{}, now time.Time) {
	if !b.pace.on {
		return
	}
	x, s := b.podPace(uid), b.pace.settings
	b.foldCauses(uid, x, now)
	if statuses && x.call == call {
		x.last.begins() // the statuses are looked at later than any list that has ended
		return
	}
	gap := now.Sub(x.ended)
	switch {
	case b.lied() && !b.truth.mentions(uid):
		if b.phantoms++; b.phantoms > 4*(b.lists+b.podReads-b.phantoms)+20 {
			b.fail("greedy", "%d reads of pods that never were, and %d others", b.phantoms, b.lists+b.podReads-b.phantoms)
		}
	case x.credit:
	case !b.lied() && !x.open && x.clear && x.begun.After(x.caused.Add(s.grace)) && !b.truth.restless(uid):
		b.fail("greedy", "pod %s is read again %v after a read at rest, and it is not going away", uid, gap)
	case x.fails > 0:
		if delay := x.patience(); gap < delay && !(x.maybe && x.climb(gap, s)) {
			b.fail("greedy", "pod %s is read again %v after %d reads in a row have failed, want %v", uid, gap, x.fails, delay)
		}
	case x.climb(gap, s), x.maybe && gap >= retryBase:
	default:
		b.fail("greedy", "pod %s is read without a reason, %v after the last time, the %d. time since it changed, was told of or wanted", uid, gap, x.rereads+x.looks+1)
	}
	x.eager = x.credit
	x.call, x.credit = call, !x.caused.Before(now) // what comes up in this very instant may come after the read begins
	x.wants = x.credit
	x.resolve(now, s.grace)
	x.clear = now.After(x.ended) && now.After(b.pace.ended) // what was first seen in this very instant may have come after
	if x.behind = (time.Time{}); now.Equal(x.ended) {
		x.behind = x.begun
	}
	x.started = now
	x.last.begins()
	if x.begun = now; statuses {
		x.begun = b.pace.applied // it tells how the pod was when the list began that found it changed
	}
	x.builds = statuses && (now.Equal(b.listOKEnd) || !b.prompt.troubled.Before(b.listOKEnd))
	x.early = x.fails > 0 && x.begun.Before(x.ended.Add(x.patience()))
}

// patience is the delay after the failures in a row.
func (x *podPace) patience() time.Duration {
	if x.shared {
		return retryBase
	}
	return grown(retryBase, x.fails-1, retryMax)
}

// readEnds notes the end of a read, or of its first half.
func (b *ledger) readEnds(uid cache.UID, statuses bool, items []pleg.Item, now time.Time, err error) {
	if !b.pace.on {
		return
	}
	x := b.podPace(uid)
	b.foldCauses(uid, x, now)
	if b.pace.applied.After(x.begun) && (x.overtaken.IsZero() || x.overtaken.Equal(x.begun)) {
		x.cause(now) // what it says is refused, because a list knew better
		x.overtaken = x.begun
	}
	x.ended = now
	if err == nil {
		b.showed(uid, x, items, now)
	}
	x.crosses(items, now, err)
	begun := x.begun
	if err != nil && b.pace.settings.tells {
		begun = x.started // it may have been a read by IDs, which builds on no list
	}
	x.answered(items, begun, now, err)
	x.settleBehind(now)
	if statuses {
		for _, old := range x.took {
			b.lose(old, now)
		}
		x.took = nil
	}
	if x.eager || !x.begun.After(b.listFirst) {
		b.pace.found = now
	}
	x.open = x.open || err != nil
	if err != nil && b.pace.applied.After(x.begun) {
		x.maybe = true
	} else if err != nil && !x.early {
		x.fails++
	} else if err == nil && (statuses || len(items) == 0) {
		x.succeed()
		x.shared = false
		if x.open && x.begun.After(x.caused.Add(b.pace.settings.grace)) { // else it may contradict a claim, and the error stays
			x.open, x.closed = false, now
		}
	}
	if !x.caused.Before(x.begun) {
		x.credit = true // it may have looked before that
	}
}

// settleBehind notes the end of a read that began in the instant in which the one before was known. What that showed first may have come up after this
// one had looked, for all that can be told, so that one more is made for what both were made for.
func (x *podPace) settleBehind(now time.Time) {
	if x.behind.IsZero() || !x.caused.After(x.behind) {
		return
	}
	x.wants, x.credit = true, true
	if x.asked.After(x.behind) {
		x.asked = now
	}
}

// showed notes what a read shows of a pod: of a runtime that lies it may be something else each time, and then it has to be looked at again.
func (b *ledger) showed(uid cache.UID, x *podPace, items []pleg.Item, now time.Time) (differs bool) {
	for _, it := range items {
		old, known := b.pace.shown[it.ID]
		b.pace.shown[it.ID] = uid
		if known && old != uid { // it was shown of another pod before
			b.pace.left[it.ID] = old
			x.cause(now)
			x.succeed()
		} else if old, known = b.pace.left[it.ID]; known {
			delete(b.pace.left, it.ID) // two reads at once may have shown it of two pods: the next one decides
		} else {
			continue
		}
		b.lose(old, now)
		x.shared, x.took = true, append(x.took, old)
	}
	if !b.lied() {
		return false
	}
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b pleg.Item) int { return cmp.Or(strings.Compare(a.ID, b.ID), int(a.Phase)-int(b.Phase)) })
	if slices.Equal(items, x.shown) {
		return false
	}
	x.shown, x.ladders = items, ladders{}
	return true
}

// blurs says that a list does not know a state that a status does.
func blurs(listed, shown []pleg.Item) bool {
	return slices.ContainsFunc(listed, func(it pleg.Item) bool {
		p := phaseIn(shown, it.ID)
		return it.Phase == pleg.PhaseUnknown && p != pleg.PhaseUnknown && p != pleg.PhaseRemoved
	})
}

// blind says that a list does not know the state of an ID that the status does not show.
func blind(listed, shown []pleg.Item) bool {
	return slices.ContainsFunc(listed, func(it pleg.Item) bool {
		return it.Phase == pleg.PhaseUnknown && !slices.ContainsFunc(shown, func(s pleg.Item) bool { return s.ID == it.ID })
	})
}

// lose notes that a pod has lost an ID to another one.
func (b *ledger) lose(uid cache.UID, now time.Time) {
	x := b.podPace(uid)
	x.cause(now)
	x.succeed() // nothing may be left of it
	x.shared = true
}

// podsListed notes the end of a list: it gives another try to what has failed, and may have looked before a change.
func (b *ledger) podsListed(begun, now time.Time, l *pleg.Listing, err error) {
	if err != nil {
		return
	}
	shown := make(map[cache.UID][]pleg.Item, len(l.Pods))
	for _, p := range l.Pods {
		shown[p.UID] = p.Items
		b.podPace(p.UID)
	}
	for _, uid := range l.Gone {
		shown[uid] = nil
	}
	for uid, x := range b.pace.pods {
		if items, ok := shown[uid]; ok || !l.Delta {
			x.last.listed = items
		}
		x.listEnded(b.inflight[uid] > 0, b.shows(uid), begun, now)
		x.answered(x.last.listed, begun, now, nil)
		if b.showed(uid, x, x.last.listed, now) {
			x.cause(now)
			x.succeed()
		}
		if x.open {
			x.credit = true
		}
		if blurs(x.last.listed, b.shows(uid)) {
			x.cause(now) // only the statuses can tell whether what the cache shows is still so
		} else if blind(x.last.listed, b.shows(uid)) {
			x.credit = true // they are read at once, as after a ListPod: they are a part of the read
		}
		if b.truth.empty(uid, begun) || b.truth.empty(uid, now) || b.lied() && len(x.last.listed) == 0 {
			x.succeed() // the list, which shows nothing of it, is the read that did not fail
		}
		x.resolve(begun, b.pace.settings.grace)
		if !x.caused.Before(begun) || x.begun.After(begun) {
			x.cause(now) // what it tells is old already
		}
	}
}
