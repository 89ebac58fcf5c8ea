// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// boundary is the record of what passes between a generator and its runtime: the begin and end of
// reads, and the claims. Safe for concurrent use.
type boundary struct {
	truth   *Truth
	fail    func(kind, format string, args ...any)
	workers int
	ofList  func(begun time.Time, ends bool)      // told of lists of everything
	lying   func() bool                           // reads may lie, differently each time; nil: never
	doubt   func() time.Duration                  // how long a claim and a read may contradict each other
	mood    func(at time.Time, uids ...cache.UID) // phases of pods may go back

	opened time.Time // when the generator was made
	heir   bool      // there was one before it

	mu         sync.Mutex
	listing    int
	streams    int
	listened   [][2]time.Time // when the streams were open; the end of an open stream is zero
	inflight   map[cache.UID]int
	begun      map[cache.UID]time.Time // of the reads in flight
	listBegun  time.Time
	lists      int
	statuses   int
	podReads   int
	most       int                       // reads of pods at once
	fewer      [2]int                    // workers unused at most after timeouts: for all reads, and for pods whose last read failed
	lately     time.Duration             // duration of successful reads of pods; fades by an eighth with each
	warnings   int                       // recorded by the generator about the runtime's answers
	accused    map[pleg.Reason]bool      // the reasons among them
	listEnd    time.Time                 // end of the latest list, well or not
	listTook   time.Duration             // how long that list lasted
	unnoticed  time.Duration             // pauses of the loop since the turn that began the last list, each too short to be noticed
	lapse      time.Duration             // the longest of them
	stood      time.Duration             // all pauses of the loop
	paused     time.Time                 // begin of the last standstill; pauses that run on are one
	turnStood  time.Time                 // begin of the pauses at its end that are too short to be noticed: those of the turn under way
	noticed    bool                      // the last pause was none of these
	resumed    time.Time                 // when the loop went on after its last pause: it may have heard of a list only then
	listFailed bool                      // the last list failed
	phantoms   int                       // reads of pods known only from a lie
	listOK     time.Time                 // start of the latest successful list
	listOKEnd  time.Time                 // and its end
	listFirst  time.Time                 // end of the first list begun after the last disturbance; zero if none
	disturbed  time.Time                 // the last disturbance
	afterHang  map[cache.UID]time.Time   // end of the first list begun after a call about the pod alone has hung
	podEnd     map[cache.UID]time.Time   // start of the latest finished read of the pod, failed or not
	podFail    map[cache.UID]time.Time   // start of the latest failed list
	wholes     map[cache.UID][]time.Time // starts of the reads of all statuses of a pod that ended well, from their list on
	podWhole   map[cache.UID]time.Time   // start of the latest successful read of the pod, from its list on
	asked      map[cache.UID]time.Time   // the latest reinspection requested of a pod and not answered
	stopping   bool                      // the generator's context has ended
	closed     bool
	pace       pace
	peekPace   peekPace
	prompt     prompt
	own        map[cache.UID]*agentAt
	touched    map[string]time.Time             // the last begin or end of an own call about each ID
	ended      map[string]bool                  // IDs that an own call has ended, or removed
	debts      []debt                           // silent changes that cost trust
	firstTold  [pleg.PhaseRemoved + 1]time.Time // when a claim first told of each phase
	removed    map[cache.UID]time.Time          // when an own call or a read by IDs last showed that an ID of the pod is gone
	goneAsOf   map[cache.UID]time.Time          // as of when a pod was last gone by such calls alone
	unnamed    map[string]bool                  // IDs with news of unknown place, until a read or a list shows them
	shows      func(cache.UID) []pleg.Item      // by the cache
	fails      func(cache.UID) bool             // whether an error stands in the cache
	held       func() []cache.UID               // the pods in the cache
	halved     bool                             // the last list may have lost more pods than it has kept
	believed   bool                             // halved of the list before, on which the last list builds
	revision   pleg.Revision                    // of the last list
	confirmed  func(cache.UID) time.Time        // since when the cache knows of a pod; zero beside an error
	outcome    *Outcome                         // nil without a recording
	instant    time.Time
	perInstant int
}

func newBoundary(truth *Truth, workers int, fail func(kind, format string, args ...any)) *boundary {
	truth.Restart()
	return &boundary{
		truth:     truth,
		fail:      fail,
		workers:   workers,
		opened:    time.Now(),
		accused:   make(map[pleg.Reason]bool),
		inflight:  make(map[cache.UID]int),
		begun:     make(map[cache.UID]time.Time),
		podEnd:    make(map[cache.UID]time.Time),
		afterHang: make(map[cache.UID]time.Time),
		podFail:   make(map[cache.UID]time.Time),
		wholes:    make(map[cache.UID][]time.Time),
		podWhole:  make(map[cache.UID]time.Time),
		removed:   make(map[cache.UID]time.Time),
		goneAsOf:  make(map[cache.UID]time.Time),
		unnamed:   make(map[string]bool),
		asked:     make(map[cache.UID]time.Time),
		touched:   make(map[string]time.Time),
		ended:     make(map[string]bool),
		peekPace: peekPace{
			under: make(map[cache.UID]int),
			maybe: make(map[cache.UID]calls),
			made:  make(map[cache.UID][]time.Time),
			ended: make(map[cache.UID]time.Time),
		},
	}
}

// maxCallsPerInstant is more calls than any history here can need without time passing.
const maxCallsPerInstant = 400

func (b *boundary) enter() time.Time {
	now := time.Now()
	if b.closed {
		b.fail("leak", "a read began after Run had returned")
	}
	if !now.Equal(b.instant) {
		b.instant = now
		b.perInstant = 0
	}
	b.perInstant++
	if b.perInstant == maxCallsPerInstant {
		b.fail("storm", "%d calls of the runtime without time passing", b.perInstant)
	}
	return now
}

// brake lets time pass in a storm, so that the history can end.
func (b *boundary) brake(ctx context.Context) {
	b.mu.Lock()
	storm := b.perInstant >= maxCallsPerInstant
	b.mu.Unlock()
	if storm {
		_ = sleep(ctx, time.Second)
	}
}

// rest returns the time of the last disturbance.
func (b *boundary) rest() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes()
	return b.disturbed
}

// changes ends the rest at the runtime's last change, as of the last refresh, whoever has made the
// change, and whenever it was asked for: an unanswered call may be carried out minutes later, when
// no command runs. The caller holds the mutex.
func (b *boundary) changes() { b.disturbs(b.truth.changed()) }

// inherit takes over the reads of an earlier generator, because the cache holds their results.
func (b *boundary) inherit(before *boundary) {
	if before == nil {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	maps.Copy(b.podEnd, before.podEnd)
	maps.Copy(b.podFail, before.podFail)
	maps.Copy(b.podWhole, before.podWhole)
	b.heir = true
	maps.Copy(b.removed, before.removed)
	b.listened = slices.Clone(before.listened)
	b.listOK = before.listOK
	b.disturbed = before.disturbed
}

// unread reports whether a generator before this one may have known a pod that this one has not
// read yet.
func (b *boundary) unread(uid cache.UID) bool { return b.heir && b.podPace(uid).whole.IsZero() }

// disturb notes that the runtime, or the path to the generator, is not at rest before t.
func (b *boundary) disturb(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disturbs(t)
}

// disturbs is disturb for a caller that holds the mutex.
func (b *boundary) disturbs(t time.Time) {
	if t.After(b.disturbed) {
		b.disturbed = t
		b.listFirst = time.Time{}
	}
}

// compare notes of which IDs a read of a pod has lied.
func (b *boundary) compare(uid cache.UID, shown, asked []pleg.Item, begun time.Time, err error) {
	if b.lied() && err == nil {
		b.truth.refresh()
		b.truth.Compare(uid, shown, asked, begun)
	}
}

// compareList does so for a list of everything.
func (b *boundary) compareList(begun time.Time, l *pleg.Listing, err error) {
	if !b.lied() || err != nil {
		return
	}
	named := make(map[cache.UID]bool, len(l.Pods))
	for _, p := range l.Pods {
		named[p.UID] = true
		b.truth.Compare(p.UID, p.Items, nil, begun)
	}
	if l.Delta {
		return
	}
	for _, uid := range b.truth.known() {
		if !named[uid] {
			b.truth.Compare(uid, nil, nil, begun)
		}
	}
}

// told notes a claim for the pace.
func (b *boundary) told(pod cache.UID, it pleg.Item, payload []pleg.Item, now time.Time) {
	b.truth.refresh()
	for _, x := range append([]pleg.Item{it}, payload...) {
		if owner, revived := b.truth.revived(x.ID, x.Phase); revived {
			b.mood(now, owner, pod) // the claim is from before
			b.truth.echo(x.ID)
		} else if b.truth.endsAgain(x.ID, x.Phase) {
			b.truth.echo(x.ID) // it may be the event of the first end
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if it.Phase <= pleg.PhaseRemoved && b.firstTold[it.Phase].IsZero() {
		b.firstTold[it.Phase] = now
	}
	owner, _ := b.truth.phaseOf(it.ID)
	b.settling(pod, now, false)
	b.settling(owner, now, false)
	if pod == "" || it.Phase == pleg.PhaseRemoved {
		b.unnamed[it.ID] = true
	}
	b.promised(pod, it, payload, now)
	b.pace.heard(now)
	b.claimed(pod, now)
	b.claimed(owner, now)
	for _, x := range payload {
		owner, _ := b.truth.phaseOf(x.ID)
		b.claimed(owner, now)
	}
}

// listedAfterHang notes a list that has ended well, for the pods of which calls have hung.
func (b *boundary) listedAfterHang(begun, now time.Time) {
	for _, uid := range b.truth.known() {
		until := b.truth.hangsUntil(uid)
		if !until.IsZero() && begun.After(until) && !b.afterHang[uid].After(until) {
			b.afterHang[uid] = now
		}
	}
}

// podFirst returns the end of the first list begun when a pod had come to rest; zero if none has
// ended. It is later than that of a node at rest, if calls about the pod alone have hung, or a read
// of it from then is under way.
func (b *boundary) podFirst(uid cache.UID) time.Time {
	until := b.truth.hangsUntil(uid)
	if until.IsZero() {
		return b.listFirst
	}
	begun, under := b.begun[uid]
	after := b.afterHang[uid]
	if !after.After(until) || under && !begun.After(until) && time.Since(begun) > 100*time.Millisecond {
		return time.Time{}
	}
	return latest(b.listFirst, after)
}

// podOutlived is outlived for a read of a pod: if calls about the pod alone hang, it puts off the
// rest of that pod, and of those whose last read has failed: one hung read of such pods may be all
// of them that is under way. The cost: they keep their error until it has ended, or to a probe.
func (b *boundary) podOutlived(uid cache.UID, begun time.Time) {
	now := time.Now()
	until := b.truth.hangsUntil(uid)
	if until.IsZero() || begun.After(until) {
		b.outlived(begun)
	} else if now.Sub(begun) > 100*time.Millisecond {
		b.hung(uid, now)
		for other := range b.podFail {
			if b.fails(other) {
				b.hung(other, now)
			}
		}
	}
}

// hung notes that calls about a pod alone may have hung until a time.
func (b *boundary) hung(uid cache.UID, until time.Time) {
	b.truth.Hangs(uid, until)
	delete(b.afterHang, uid)
}

// outlived notes the end of a read begun before the rest: a newly ended fault had made the read
// slow.
func (b *boundary) outlived(begun time.Time) {
	if now := time.Now(); !begun.After(b.disturbed) && now.Sub(begun) > 100*time.Millisecond {
		b.listFirst = time.Time{}
		if now.After(b.disturbed) {
			b.disturbed = now
		}
	}
}

// heard reports whether a stream was open at a time. The caller holds the mutex.
func (b *boundary) heard(at time.Time) bool {
	for _, s := range b.listened {
		if !at.Before(s[0]) && (s[1].IsZero() || !at.After(s[1])) {
			return true
		}
	}
	return false
}

// lookMissed checks that the count of missed events is no more than the unannounced changes while a
// stream was open.
func (b *boundary) lookMissed(missed int, grace time.Duration) {
	if missed == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	discards := b.pace.on && !b.pace.settings.roomy()
	if n := b.truth.untold(grace, b.heard, discards); missed > n {
		b.fail(
			"false-missed",
			"%d events are said to be missed, and while a stream was open there were %d changes of which nothing was told",
			missed,
			n,
		)
	}
}

// halves reports whether a list may lack more living pods than it shows. A pod missing in the
// list counts even if the cache does not show the pod running: a newly started generator, or a
// generator with a failed read of the status, does not know the pod. A pod of which no read can
// ever have shown anything is none that lived. A pod whose reads fail need not be kept: its
// status is older than what its reads have listed.
func (b *boundary) halves(l *pleg.Listing) bool {
	if b.held == nil {
		return false
	}
	shown := make(map[cache.UID]bool, len(l.Pods))
	for i := range l.Pods {
		shown[l.Pods[i].UID] = len(l.Pods[i].Items) > 0
	}
	lost := 0
	kept := 0
	for _, uid := range b.held() {
		switch {
		case slices.Contains(l.Gone, uid) || !l.Delta && !shown[uid]:
			if b.heir || b.lied() || b.truth.ever(uid) {
				lost++
			}
		case !b.fails(uid) && slices.ContainsFunc(b.shows(uid), b.surelyRunsHere):
			kept++
		}
	}
	return lost > kept
}

// surelyRunsHere is surelyRuns for the pod with the ID in its entry. If reads have shown an ID in
// two pods, the generator may take either for the ID's pod: two reads may end in one instant, and a
// failed read leaves the ID in the entry of its former pod.
func (b *boundary) surelyRunsHere(it pleg.Item) bool {
	return b.surelyRuns(it) && !b.pace.wandered[it.ID]
}

// surelyRuns reports whether the generator knows an ID as running, whatever the claims. An ID that
// has recovered during a call of the agent's own ended for the generator with the call, until its
// status is read.
func (b *boundary) surelyRuns(it pleg.Item) bool {
	_, phase := b.truth.phaseOf(it.ID)
	ended := b.truth.told(it.ID, pleg.PhaseExited) ||
		b.truth.told(it.ID, pleg.PhaseRemoved) ||
		b.truth.borneOut(it.ID)
	return it.Phase == pleg.PhaseRunning && phase == pleg.PhaseRunning && !ended
}

// waitingFor reports whether a read from before the rest is still under way. That of a pod of which
// calls hang keeps the pod from its rest alone (podFirst).
func (b *boundary) waitingFor() bool {
	for uid, begun := range b.begun {
		if begun.After(b.truth.hangsUntil(uid)) && b.isOld(begun) {
			return true
		}
	}
	return b.listing > 0 && !b.listBegun.After(b.disturbed)
}

// isOld reports whether a read begun at a time, and under way, is from before the rest.
func (b *boundary) isOld(begun time.Time) bool {
	return !begun.After(b.disturbed) && time.Since(begun) > 100*time.Millisecond
}

// heldUp reports whether the last read of a pod has failed, and one from before the rest is under
// way: it may be all of such pods' that is, until it has ended.
func (b *boundary) heldUp(uid cache.UID) bool {
	return b.fails(uid) && slices.ContainsFunc(slices.Collect(maps.Values(b.begun)), b.isOld)
}

// callsGoOn reports whether calls of the agent's own are under way for which reads of their pod may
// wait, or have waited until a base period ago; or such a call is to follow.
func (b *boundary) callsGoOn(now time.Time) bool {
	for _, o := range b.own {
		if (o.calls > 0 || o.bare) && now.Before(latest(o.until, o.heard).Add(b.pace.settings.base)) {
			return true
		}
	}
	return false
}

// atRest checks that no goroutine of a generator is left.
func (b *boundary) atRest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	peeks := 0
	for _, n := range b.peekPace.under {
		peeks += n
	}
	if b.listing+b.streams+len(b.inflight)+peeks > 0 {
		b.fail(
			"leak",
			"after Run: %d lists, %d streams, %d pod reads under way",
			b.listing,
			b.streams,
			len(b.inflight),
		)
	}
}
