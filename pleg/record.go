// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// phaseNone, in a field for a shown phase, means that the ID is not shown.
const phaseNone = Phase(0xff)

// item is the record of one ID. The core owns it. The functions of each embedded group's type, and
// the handler of the report in question, are the only writers of the group.
type item struct {
	id    string
	name  string // the container's name, from a read
	mark  uint64 // the last merge that showed the ID
	kind  Kind
	heard // this and the next two are small, and fill one word with the kind
	shown
	watched
	place
	belief
}

// place is where an ID is filed.
type place struct {
	pod *pod
	at  int // in pod.items
}

// heard is what the stream has reported of an ID.
type heard struct {
	claimed Phase // the furthest phase claimed, for the count of missed events
	events  heardEvents
}

// heardEvents has a bit for each phase announced by an event of the ID itself, without payloads of
// other events and without replays. Only counts depend on heardEvents.
type heardEvents uint8

func (h heardEvents) has(p Phase) bool { return h&(1<<p) != 0 }

// disordered returns how many events of h came out of order after those of before: an event of the
// same phase, or of a later phase, had come earlier.
func (h heardEvents) disordered(before heardEvents) int {
	return bits.OnesCount8(uint8(h) & (1<<bits.Len8(uint8(before)) - 1))
}

// belief is how far the life of an ID is believed to have come, and on which evidence.
type belief struct {
	phase          Phase   // the later of all reports, unless a read overruled a claim
	cause          Cause   // of the phase, for its event
	byClaim        bool    // the phase is claimed, and no read has confirmed the claim
	rolledBack     bool    // the phase is earlier than the one before: a read overruled that one
	stoppedByAgent bool    // a sandbox that a call of the agent's own has stopped
	shownAgain     bool    // more than one read has shown the ID
	first          instant // when a read first showed the ID
	since          instant // when the report that set the phase was applied
	confirmed      instant // when a read confirmed a claimed phase, else since: an older read may have looked before
	stamp          int64   // the runtime's stamp of the claim that set the phase, Unix nanoseconds; 0 if none
}

// believe sets the phase.
func (b *belief) believe(phase Phase, cause Cause, byClaim bool, stamp int64, now instant) {
	b.phase, b.cause, b.byClaim, b.stamp, b.since, b.confirmed = phase, cause, byClaim, stamp, now, now
	b.rolledBack, b.stoppedByAgent = false, false
}

// confirm notes that a read has confirmed the claimed phase.
func (b *belief) confirm(now instant) { b.byClaim, b.confirmed = false, now }

// rolledBackSince says that a read has taken the ID back to its phase since the given begin of
// another read, which shows the ID further on, or gone: the other read may have seen the overruled
// state.
func (b *belief) rolledBackSince(began instant) bool { return b.rolledBack && began <= b.confirmed }

// shown is where an ID is visible, and in which phase; phaseNone means not visible.
type shown struct {
	cached        Phase // the pod's status in the cache
	listed        Phase // the last applied list of everything
	statusUnknown bool  // the status in the cache does not know the ID's state (CRI CONTAINER_UNKNOWN)
}

// invalidateStatus requires a read of the pod's statuses before a claim's payload, or a list, can
// settle the pod: a read did not know the state of the ID, so the order of a claim and of that
// state is unknown.
func (x *item) invalidateStatus() {
	if x.cached == phaseNone && x.pod.hasStatus {
		x.cached = PhaseUnknown
	}
}

// watched is what Watch has received of an ID.
type watched struct {
	emitted Phase // phaseNone before the first event
	mask    uint8 // events emitted, one bit each: none is emitted twice for one ID
}

// once marks an event as emitted, unless the event, or a later one of the same life, was emitted
// before. It reports whether the event may be emitted.
func (w *watched) once(unless, mask uint8) bool {
	if w.mask&unless != 0 {
		return false
	}
	w.mask |= mask
	return true
}

const (
	maskStarted uint8 = 1 << iota
	maskDied
	maskRemoved
)

// unconfirmedID is an ID that the stream has claimed and no read has shown yet.
type unconfirmedID struct {
	phase Phase
	at    instant // when the phase was claimed
	stamp int64
}

// pod is the record of one pod. The core owns it. A pod without items exists only while a read of
// it is wanted, or the cache has its status.
//
// A node of 100,000 containers has 50,000 of these, of 320 bytes, and 150,000 items, of 104: a word
// more of either shows in BenchmarkMemory.
type pod struct {
	uid             cache.UID
	name, namespace string
	items           []*item
	unconfirmed     map[string]unconfirmedID
	reported
	stored
	wanted
	delays
	queueing
	lastList
}

// reported is what reports have said of a pod as a whole.
type reported struct {
	read             instant // start of the latest applied read that named the pod
	changedAt        instant // when a claim, or an own call, last changed something of the pod
	disagrees        bool    // the last applied read shows less than is known
	conflictReported bool    // an owner conflict of this pod was reported
	callFailed       bool    // a call of the agent's own has failed: the call may still take effect, unannounced
	uncertainCreate  bool    // a create call has failed
	ready            int32   // running sandboxes
	own              own     // state of the agent's own calls
}

// stored is what the cache has of a pod.
type stored struct {
	asOf      instant // start of the latest read that confirmed the entry, global time aside
	hasStatus bool    // a status from a read
	foreign   bool    // a status written before this generator, or by somebody else
	failed    bool    // the last inspection failed, and its error is in the cache
	foreignID bool    // the status shows an ID that is believed to belong to another pod
}

// hasEntry says that the cache holds something of the pod.
func (s *stored) hasEntry() bool { return s.hasStatus || s.foreign || s.failed }

// wanted is the demand for reads of a pod.
type wanted struct {
	want    instant // a read must begin after this: a waiter, or the core, needs one
	waited  instant // the latest time asked for by others than the core; 0 if none is left
	force   instant // a read of the statuses must begin after this, changed or not
	forced  instant // when the last forced read started
	syncDue bool    // a forced read was stored: Watch gets at least a PodSync
	// reassigned: an ID that Watch or the cache has shown turned out to belong to another pod. Once
	// force is answered, Watch gets a PodSync besides any other event.
	reassigned bool
}

// asked says that a read of the pod is wanted.
func (w *wanted) asked() bool { return w.want != 0 || w.force != 0 }

// served notes that the cache has the pod as of that time, and clears the demands that time
// satisfies.
func (w *wanted) served(asOf instant) {
	if w.want != 0 && asOf > w.want {
		w.want = 0
	}
	if w.waited != 0 && asOf > w.waited {
		w.waited = 0
	}
}

// answered notes that a status as of that time was stored: a forced read that it answers owes Watch
// a PodSync.
func (w *wanted) answered(at instant) {
	if w.force != 0 && at > w.force {
		w.force, w.syncDue = 0, true
	}
}

// queueing is where a pod waits for its next read.
type queueing struct {
	queued   queueKind
	reading  bool    // the core's inflight map has a read of this pod; a lookup there each time would cost too much
	slow     bool    // the last read of the pod hung
	affected bool    // the pod is in attention.affected
	laterAt  instant // the pod's earliest entry in laterQ; 0 if none
}

// lastList is what the last list of everything showed of a pod.
type lastList struct {
	listing      []Item // nil once an inspection has used the listing
	listingBegan instant
	seenIn       uint64 // the last list that showed the pod, to detect pods shown twice and pods gone
	// conflicts are IDs that the list showed in this pod and that are believed to belong to another: a
	// later list may show the same by silence.
	conflicts map[string]Item
}

// noteChange notes a change of the pod, to be read at once.
func (p *pod) noteChange(now instant) {
	p.changedAt = now
	p.delays.expedite()
}

// servedBy says that a read begun at the given time is late enough for every demand on the pod and
// every claim about it.
func (p *pod) servedBy(began instant) bool {
	return began > p.want && began > p.force && began >= p.changedAt
}

// add adds an item to the pod.
func (p *pod) add(x *item) {
	x.at = len(p.items)
	p.items = append(p.items, x)
}

// remove takes an item out of the pod. The last item takes its place, so that the loss of many IDs
// one by one is no walk through all for each.
func (p *pod) remove(x *item) {
	end := len(p.items) - 1
	last := p.items[end]
	p.items[x.at], last.at = last, x.at
	p.items[end] = nil
	p.items = p.items[:end]
}

// addConflict notes that the last list showed an ID in this pod which is believed to belong to
// another.
func (p *pod) addConflict(it Item) {
	if p.conflicts == nil {
		p.conflicts = make(map[string]Item)
	}
	p.conflicts[it.ID] = it
}

// listingServes says that an inspection needs no other listing than that of the last list, which is
// no older than the stored status.
func (p *pod) listingServes() bool {
	return p.listing != nil && p.servedBy(p.listingBegan) && p.listingBegan >= p.asOf
}

// byUID orders pods.
func byUID(a, b *pod) int { return strings.Compare(string(a.uid), string(b.uid)) }

// inOrder returns the pods of a set in the order of their UIDs, so that a history replays the same
// way.
func inOrder(pods map[cache.UID]*pod) []*pod {
	return slices.SortedFunc(maps.Values(pods), byUID)
}

// live returns the number of items that the runtime is believed to have.
func (p *pod) live() int {
	n := 0
	for _, x := range p.items {
		if x.phase != PhaseRemoved {
			n++
		}
	}
	return n
}

// find returns the pod's item of an ID, or nil.
func (p *pod) find(id string) *item {
	for _, x := range p.items {
		if x.id == id {
			return x
		}
	}
	return nil
}

// settled says that the cache shows the pod as believed: every live ID in its phase, and no other
// ID.
func (p *pod) settled() bool {
	if p.foreign {
		return false
	}
	if !p.hasStatus {
		return p.live() == 0
	}
	for _, x := range p.items {
		if x.phase == PhaseRemoved {
			if x.cached != phaseNone {
				return false
			}
		} else if x.cached != x.phase {
			return false
		}
	}
	return true
}

// hasUnconfirmed says that an unconfirmed ID of the pod may exist.
func (p *pod) hasUnconfirmed() bool {
	if len(p.unconfirmed) == 0 {
		return false // nearly always; and each change asks several times
	}
	for _, s := range p.unconfirmed {
		if s.phase != PhaseRemoved {
			return true
		}
	}
	return false
}

// unsure says that the state of the pod is in doubt: only a read can settle it.
func (p *pod) unsure() bool {
	return !p.settled() || p.disagrees || p.failed || p.foreignID || p.hasUnconfirmed() || p.statusUnknown()
}

// statusUnknown says that either the pod's status or the last list knows the state of an ID and the
// other does not: the statuses must be read, whatever a listing of the pod shows.
func (p *pod) statusUnknown() bool {
	for _, x := range p.items {
		switch {
		case x.phase == PhaseRemoved:
		case x.statusUnknown && x.listed != phaseNone && x.listed != PhaseUnknown, !x.statusUnknown && x.cached == PhaseUnknown:
			return true
		}
	}
	return false
}

// inTeardown says that the pod has a sandbox that is not ready, whose removal the runtime may never
// announce. An agent that stopped the sandbox itself will also remove it, and say so.
func (p *pod) inTeardown() bool {
	for _, x := range p.items {
		if x.kind == Sandbox && x.phase == PhaseExited && (!x.stoppedByAgent || p.callFailed) {
			return true
		}
	}
	return false
}

// ladder is a delay that doubles: each step is as long as all before. The zero ladder delays
// nothing.
type ladder struct {
	step time.Duration // the last delay; 0 at the foot
	end  instant       // when the delay is over
}

// climb begins a delay after a read that began at the given time: the next longer step, within
// least and most, or the same step again if that read had not waited for the end of the last. Lists
// and waiters come at times of their own, and a dozen within some milliseconds must not put the
// next read off by minutes. Returns the end.
func (l *ladder) climb(began, now instant, least, most time.Duration) instant {
	switch {
	case l.step == 0:
		l.step = least
	case began >= l.end:
		l.step = doubled(l.step, most)
	}
	l.end = now.add(l.step)
	return l.end
}

// climbed says that a delay is set.
func (l *ladder) climbed() bool { return l.step != 0 }

// delays are when a pod is read again without a demand.
type delays struct {
	notYet   instant // no read before this: the end of one of the ladders, or 0 for at once
	reread   ladder  // while the pod is unsure
	teardown ladder  // while the pod is in teardown
	backoff  ladder  // after failures, from the first to the next success
}

// expedite drops the delay, because something has changed: a pod in doubt is read at once. Failures
// still delay each other.
func (d *delays) expedite() { d.notYet, d.reread = 0, ladder{} }

// settle ends the delays of a pod without doubt.
func (d *delays) settle() { d.reread, d.backoff = ladder{}, ladder{} }

// instant is a moment of the monotonic clock, in nanoseconds since the generator was made. Zero is
// before everything, and often means none. Any time before the generator was made, such as waiters
// may ask for, is 1, and the clock starts at 2: the first read begins after all of those. An
// instant is a third of a time.Time, and orders the same way whatever the wall clock does.
//
// Arithmetic of instants never overflows: a sum stops at zero and at never, whatever the duration.
type instant int64

// never is later than every other instant; sums and differences of never are never.
const never = instant(math.MaxInt64)

// add returns the moment d after i, or before i if d is negative.
func (i instant) add(d time.Duration) instant {
	switch {
	case i == never || d > 0 && i > never-instant(d):
		return never
	}
	return max(0, i+instant(d)) // i is not negative: a negative d cannot overflow here
}

// next returns the first moment after i.
func (i instant) next() instant { return i.add(1) }

// after returns the moment d after i, or the beginning if i is none.
func (i instant) after(d time.Duration) instant {
	if i == 0 {
		return 0
	}
	return i.add(d)
}

// sub returns the time from j to i. Neither is negative, so the difference fits.
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// doubled returns twice a delay, but not more than most.
func doubled(d, most time.Duration) time.Duration {
	if d > most/2 {
		return most
	}
	return 2 * d
}

// sum returns the sum of two delays, or the longest duration.
func sum(d, e time.Duration) time.Duration {
	if e > math.MaxInt64-d {
		return math.MaxInt64
	}
	return d + e
}

// clock converts between instants and times of this process.
type clock struct{ epoch time.Time }

// firstInstant is when the generator was made.
const firstInstant = instant(2)

func (c clock) now() instant             { return c.instant(time.Now()) }
func (c clock) time(i instant) time.Time { return c.epoch.Add(time.Duration(i - firstInstant)) }

func (c clock) instant(t time.Time) instant {
	if d := t.Sub(c.epoch); d >= 0 {
		return firstInstant.add(d)
	}
	return firstInstant - 1
}
