// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/bits"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// podPace bounds the rate of the reads of a single pod. After each news of the pod (a change, a
// claim, a call, a waiter, a request, a contradiction of two reads) the generator may read the pod
// a few times, then with delays that double from rereadBase, and once for each list. A pod at rest
// is not read at all.
type podPace struct {
	settledFor time.Time   // the cause after which the pod was read again
	peeked     time.Time   // end of the last peek: a read follows, then a look
	settled    int         // how often
	caused     time.Time   // by the last news
	moved      time.Time   // the runtime's last change taken into account
	later      []time.Time // begins of reads that waiters will want
	doubted    time.Time   // when the last claim named the pod
	since      time.Time   // when the last news was noted
	reads      int         // since then
	lists      int         // pace.lists at the time since
	started    time.Time   // of the last read
	begun      time.Time   // likewise, or of the list on which the read may build
	ended      time.Time
	whole      time.Time                     // begin of the last read of all statuses, and of the list before them
	call       <-chan struct{}               // the Done channel of its context, which all calls of a read share
	began      map[<-chan struct{}]time.Time // the reads under way, by these channels
	erred      bool                          // a read of this generator has failed: an error in the cache is its own
	again      bool                          // the pod's last read had failed when the read under way began
	either     bool                          // it had, and a list has answered since
	open       bool                          // an error may be in the cache, or a reinspection unanswered
	closes     bool                          // open ends if no error is in the cache
	failed     bool                          // the last read has yielded nothing
	closed     time.Time                     // when failed or open last ended
	failedAt   time.Time                     // when a read has yielded nothing, or a list has come beside an error
	listed     []pleg.Item                   // items of the last list; later lists of differences may omit them
	unsure     *[]pleg.Item                  // items of the last list, if perhaps not believed
	reply      []pleg.Item                   // items of the last list or read
	vanished   int                           // reads in a row without a running ID
	lapped     bool                          // a list has ended during the read under way
	failures   int                           // reads of its statuses that have failed in a row
	reported   bool                          // a warning says that the pod cannot be read; no read has succeeded since
}

func (b *boundary) podPace(uid cache.UID) *podPace {
	x := b.pace.pods[uid]
	if x == nil {
		x = &podPace{began: make(map[<-chan struct{}]time.Time)}
		if b.pace.on {
			b.pace.pods[uid] = x
		}
	}
	return x
}

// begins notes a call of a read, which begins with its first.
func (x *podPace) begins(call <-chan struct{}, now time.Time) {
	if _, known := x.began[call]; !known {
		x.began[call] = now
	}
}

// ends returns when a read has begun, one of whose calls, begun at the given time, has ended. The
// last ends the read.
func (x *podPace) ends(call <-chan struct{}, begun time.Time, last bool) (began time.Time) {
	began, known := x.began[call]
	if last {
		delete(x.began, call)
	}
	if !known {
		return begun
	}
	return began
}

// cause records news of a pod.
func (b *boundary) cause(x *podPace, at time.Time) {
	x.caused = latest(x.caused, at)
	x.since = time.Now()
	x.reads = 0
	x.lists = b.pace.lists
	b.pace.news = latest(b.pace.news, at)
}

// wanted records a demand for a read of a pod begun after a time, which may lie ahead.
func (b *boundary) wanted(uid cache.UID, after time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.podPace(uid)
	now := time.Now()
	if after.After(now) {
		x.later = append(x.later, after)
		return
	}
	b.cause(x, now)
}

// reinspected records a request for the statuses of a pod.
func (b *boundary) reinspected(uid cache.UID) {
	b.wanted(uid, time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.podPace(uid).open = true
	b.asked[uid] = time.Now()
}

// inspected records a read of all statuses of a pod, asked for at the given time. A peek is no
// whole look. The generator counts the age of the statuses from the begin of their read, which is a
// slow list of the pod earlier, or from the begin of the list of everything on which the read
// builds. A turn of the slow round may therefore come so much sooner; the excuse is as long as
// that, and ends with the next read of all statuses.
func (b *boundary) inspected(uid cache.UID, begun time.Time, at looked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.podPace(uid)
	if !at.peek {
		from := x.begun
		if from.IsZero() { // no list has been applied: the read builds on none
			from = begun
		}
		x.whole = latest(x.whole, from)
		b.wholes[uid] = append(b.wholes[uid], at.began)
	}
	if begun.After(b.asked[uid]) {
		delete(b.asked, uid)
	}
}

// unanswered returns a pod with a reinspection that no read of all statuses begun later has
// answered.
func (b *boundary) unanswered() (cache.UID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid := range b.asked {
		if len(b.shows(uid)) > 0 {
			return uid, true
		}
	}
	return "", false
}

// foldCauses takes into account the news until now.
func (b *boundary) foldCauses(uid cache.UID, x *podPace, now time.Time) {
	if at := b.truth.moved(uid); at.After(x.moved) {
		x.moved = at
		b.cause(x, at)
	}
	x.later = slices.DeleteFunc(x.later, func(at time.Time) bool {
		if at.After(now) {
			return false
		}
		b.cause(x, at)
		return true
	})
}

// claimed records a claim about a pod.
func (b *boundary) claimed(uid cache.UID, now time.Time) {
	if b.pace.on && uid != "" {
		x := b.podPace(uid)
		b.cause(x, now)
		x.doubted = now
	}
}

// allowed is the number of reads that a pod may have had so long after the last news.
func (x *podPace) allowed(elapsed time.Duration, lists int, s *settings) int {
	steps := bits.Len64(uint64(elapsed / rereadBase))
	again := min(s.max, retryMax)
	if x.open {
		again = min(again, retryBase) // a failed read may be tried again as often as polling would
	}
	if s.reread > 0 {
		steps += int(elapsed / (s.reread / 2))
	}
	return 8 + 2*steps + int(2*elapsed/again) + 2*lists
}

// rereadDue reports whether the slow round over all pods, or the round after a reconnect, may have
// come to a pod.
func (b *boundary) rereadDue(x *podPace, now time.Time) bool {
	s := b.pace.settings
	round := 10*time.Second + 2*s.load(len(b.pace.pods))         // a list goes before the statuses
	reconnected := now.Sub(b.pace.reopened) < streamSettle+round // also if the stream has ended since
	return s.reread > 0 && (now.Sub(x.whole) >= s.reread/4 || reconnected)
}

// endSettle is how long after an end, or a payload, the statuses of its pod are read again.
const endSettle = time.Second

// settlesNow reports whether the look after an end may be due. The last read of the pod has shown
// the end, perhaps long after the change.
func (b *boundary) settlesNow(x *podPace, now time.Time) bool {
	return !x.ended.IsZero() && now.Sub(x.ended) <= endSettle+b.pace.settings.soon(0)
}

// readsAgain reports whether a pod at rest may be read: in the slow round over all pods, twice
// after the last cause (the read of an end, and the look after the end), once more after a peek,
// and after a reconnect.
func (b *boundary) readsAgain(x *podPace, now time.Time) bool {
	if b.rereadDue(x, now) {
		return true
	}
	if x.settledFor != x.caused {
		x.settledFor = x.caused
		x.settled = 0
	}
	x.settled++
	most := 2
	if !x.peeked.Before(x.caused) {
		most = 3
	}
	return x.settled <= most
}

// readBegins checks the reason for a read of a pod. The statuses read after a list of the pod are
// part of the same read.
func (b *boundary) readBegins(uid cache.UID, statuses bool, call <-chan struct{}, now time.Time) {
	if !b.pace.on {
		return
	}
	x := b.podPace(uid)
	s := b.pace.settings
	b.foldCauses(uid, x, now)
	if x.closes && !b.fails(uid) {
		x.open = false
		x.failed = false
		x.closes = false
		x.closed = now
		x.since = now
		x.reads = 0
	}
	if statuses && x.call == call {
		x.lapped = false // the look at the statuses is later than any ended list
		return
	}
	x.again = b.fails(uid) && x.erred
	x.either = !x.again && !b.podFail[uid].IsZero() && b.podFail[uid].Equal(b.podEnd[uid])
	if b.lied() && !b.truth.mentions(uid) {
		b.phantoms++
		if b.phantoms > 4*(b.lists+b.podReads-b.phantoms)+20 {
			b.fail(
				"greedy",
				"%d reads of pods that never were, and %d others",
				b.phantoms,
				b.lists+b.podReads-b.phantoms,
			)
		}
	}
	if statuses && b.listless(uid, now) {
		// The read may be a peek. The read may also take the IDs from a list, or from the agent's calls,
		// and so counts as an ordinary read in all but its pace.
		if b.peekPace.maybe[uid] == nil {
			b.peekPace.maybe[uid] = make(calls)
		}
		b.peekPace.maybe[uid][call] = true
		b.peekBegins(uid, now)
		if b.inflight[uid] == 0 {
			x.started = now // else the older read shows what hangs
		}
		x.call = call
		x.begun = b.pace.applied
		x.lapped = false
		return
	}
	x.reads++
	if n := x.allowed(now.Sub(x.since), b.pace.lists-x.lists, s); x.reads > n {
		b.fail(
			"greedy",
			"pod %s is read %d times in %v, and nothing of it is new",
			uid,
			x.reads,
			now.Sub(x.since),
		)
	}
	atRest := !b.lied() && !x.open && x.begun.After(x.caused.Add(s.restful())) && !b.truth.restless(uid)
	if atRest && !b.readsAgain(x, now) {
		b.fail(
			"greedy",
			"pod %s is read again %v after a read at rest, and it is not going away",
			uid,
			now.Sub(x.ended),
		)
	}
	x.call = call
	x.started = now
	x.lapped = false
	x.begun = now
	if statuses {
		x.begun = b.pace.applied // as of the begin of the list that found a change
	}
}

// readEnds records the end of a read, or of its first half.
func (b *boundary) readEnds(uid cache.UID, statuses, peek bool, items []pleg.Item, now time.Time, err error) {
	if !b.pace.on {
		return
	}
	x := b.podPace(uid)
	b.foldCauses(uid, x, now)
	if b.pace.applied.After(x.begun) {
		b.overtaken(x, now)
	}
	switch {
	case err != nil && len(items) == 0:
	case !vanishes(b.shows(uid), items) && !vanishes(x.reply, items):
		x.vanished = 0
	case x.vanished < 4:
		x.vanished++
		b.overtaken(x, now) // a running ID that vanishes causes one more look
	}
	if x.lapped {
		b.cause(x, now) // nobody can tell which of list and read looked last
	}
	if peek {
		x.peeked = now // the reads of its IDs are due as before
	} else {
		x.ended = now
	}
	switch {
	case err == nil && (statuses || len(items) == 0): // what looks like a peek may be the rest of a read
		x.failures = 0
		x.reported = false
	case err != nil && statuses && !peek && !b.dropped(uid, x):
		x.failures++
	}
	failed := err != nil && len(items) == 0
	if peek {
		failed = x.failed // a peek says nothing of lists
	}
	if x.failed && !failed {
		x.closed = now
	}
	x.failed = failed
	if failed {
		x.failedAt = now
	}
	if err == nil {
		b.showed(uid, x, items, now)
	}
	if err != nil {
		x.open = true
		x.erred = true
	} else if peek {
		x.closes = x.open // a peek leaves the error
	} else if (statuses || len(items) == 0) && x.open && x.begun.After(x.caused.Add(b.pace.settings.grace)) {
		// sooner, the read may contradict a claim, and the error stays
		x.open = false
		x.closed = now
		x.since = now
		x.reads = 0
	}
}

// dropped reports whether a read that has failed may be thrown away, and what it could get with it:
// it began within the grace of a claim that it may contradict, or a peek has looked since. The
// first ends with the grace; the second as lists answer again, and what the peek has shown is
// newer.
func (b *boundary) dropped(uid cache.UID, x *podPace) bool {
	claimed := !x.doubted.IsZero() && !x.started.After(x.doubted.Add(b.pace.settings.grace))
	return claimed || !b.peekPace.ended[uid].Before(x.started) || len(b.peekPace.maybe[uid]) > 0
}

// untoldMost is how many reads in a row may fail while the cache shows a status without an error:
// one that a list overtakes, and two that miss an ID, which is looked for once more.
const untoldMost = 3

// lookFailures checks that the cache holds an error of a pod whose reads fail, or that a warning
// names it: lists may answer for its phases. Nor need anybody be told of a list of the pod that
// fails where a list of everything answers in its place: only statuses count. The callers hold the
// mutexes of oracle and boundary.
func (o *oracle) lookFailures(b *boundary, now time.Time) {
	for uid, x := range b.pace.pods {
		if b.fails(uid) || len(b.shows(uid)) == 0 {
			x.failures = 0 // what a payload or a peek shows later has no error
			continue
		}
		if x.failures <= untoldMost || x.reported || !now.After(x.ended) {
			continue
		}
		o.fail("untold", "pod %s: %d reads in a row have failed, no warning says so, and the cache has a status without an error", uid, x.failures)
	}
}

// vanishes reports whether a read lacks an ID that has not ended in the cache.
func vanishes(cached, items []pleg.Item) bool {
	return slices.ContainsFunc(cached, func(it pleg.Item) bool {
		return it.Phase <= pleg.PhaseRunning &&
			!slices.ContainsFunc(items, func(s pleg.Item) bool { return s.ID == it.ID })
	})
}

// overtaken records the loss of a read to a later list or claim. The pod gets one further read, but
// its delays do not begin anew: reads longer than lists would be made without end.
func (b *boundary) overtaken(x *podPace, now time.Time) {
	x.caused = latest(x.caused, now)
	b.pace.news = now
}

// showed records in which pod a read or a list shows IDs. Where reads lie, or show an ID in another
// pod than before, the generator has to look again.
func (b *boundary) showed(uid cache.UID, x *podPace, items []pleg.Item, now time.Time) {
	for _, it := range items {
		if b.unnamed[it.ID] { // the news is known to be of this pod from now on
			delete(b.unnamed, it.ID)
			b.settling(uid, now, false)
		}
		old, known := b.pace.shown[it.ID]
		b.pace.shown[it.ID] = uid
		if known && old != uid {
			b.pace.wandered[it.ID] = true
			b.cause(x, now)
			b.cause(b.podPace(old), now)
		}
	}
	if b.lied() && !showsSame(items, x.reply) {
		b.cause(x, now)
	}
	x.reply = items
}

// blurs reports whether a list does not know a state known to the status, or the state of an ID
// missing in the status.
func blurs(listed, shown []pleg.Item) bool {
	return slices.ContainsFunc(listed, func(it pleg.Item) bool {
		return it.Phase == pleg.PhaseUnknown &&
			!slices.ContainsFunc(shown, func(s pleg.Item) bool { return s.ID == it.ID && s.Phase == it.Phase })
	})
}

// podsListed records the end of a list: failed pods get another try, and the list may have looked
// before a change.
func (b *boundary) podsListed(begun, now time.Time, l *pleg.Listing, err error) {
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
		if b.fails(uid) {
			x.failedAt = now
		}
		items, ok := shown[uid]
		if x.unsure != nil && b.believed {
			x.listed = *x.unsure
		}
		x.unsure = nil
		switch {
		case !ok && l.Delta: // as before
		case b.halved: // a list without half of the pods is not believed
			x.unsure = &items
		default:
			x.listed = items
		}
		b.showed(uid, x, x.listed, now)
		x.lapped = b.inflight[uid] > 0
		cached := b.shows(uid)
		switch {
		case x.started.After(begun) && !showsSame(cached, x.listed):
			b.cause(x, now)
		case blurs(x.listed, cached) || !x.caused.Before(begun) || x.begun.After(begun):
			b.overtaken(x, now) // the statuses may know more, or the list may be outdated
		}
	}
}
