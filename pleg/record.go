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

// phaseNone in a field that says what something shows: it does not show the ID.
const phaseNone = Phase(0xff)

// item is what is known of one ID. It belongs to the core. Each group of fields is written by the
// functions of its own type, and by the report that it is about.
type item struct {
	id    string
	name  string // what a read called the container
	mark  uint64 // the merge that showed it last
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

// heard is what the stream has told of an ID.
type heard struct {
	claimed Phase // the latest phase that the stream told, for the count of missed events
	events  heardEvents
}

// heardEvents has a bit for each phase that an event of the ID itself has told of, payloads of
// other events and replays apart. It decides of nothing but counts.
type heardEvents uint8

func (h heardEvents) has(p Phase) bool { return h&(1<<p) != 0 }

// disordered says how many of the events of h should not have come after those of before: one of
// the same phase, or of a later one, came earlier.
func (h heardEvents) disordered(before heardEvents) int {
	return bits.OnesCount8(uint8(h) & (1<<bits.Len8(uint8(before)) - 1))
}

// belief is how far the life of an ID is believed to have come, and why.
type belief struct {
	phase          Phase   // the later of all reports, unless a read overruled a claim
	cause          Cause   // for its event
	byClaim        bool    // it comes from a claim that no read has confirmed
	rolledBack     bool    // it is earlier than the one before: a read overruled that
	stoppedByAgent bool    // it is a sandbox's that a call of the agent's own has stopped
	shownAgain     bool    // more than one read has shown the ID
	first          instant // when a read first showed the ID
	since          instant // when the report was applied that set the phase
	confirmed      instant // when a read confirmed a claimed phase, else since: an older read may have looked before
	stamp          int64   // the runtime's stamp of the claim that set the phase, Unix nanoseconds; 0 if none
}

// believe sets the phase.
func (b *belief) believe(phase Phase, cause Cause, byClaim bool, stamp int64, now instant) {
	b.phase, b.cause, b.byClaim, b.stamp, b.since, b.confirmed = phase, cause, byClaim, stamp, now, now
	b.rolledBack, b.stoppedByAgent = false, false
}

// confirm notes that a read has borne out what a claim told.
func (b *belief) confirm(now instant) { b.byClaim, b.confirmed = false, now }

// rolledBackSince says that the ID has been taken back to its phase since a read began that shows
// it further, or gone: what that read looked at may be what has been overruled.
func (b *belief) rolledBackSince(began instant) bool { return b.rolledBack && began <= b.confirmed }

// shown is what others show of an ID; phaseNone stands for nothing.
type shown struct {
	cached        Phase // the pod's status in the cache
	listed        Phase // the last applied list of everything
	statusUnknown bool  // the pod's status in the cache does not know its state (CRI CONTAINER_UNKNOWN)
}

// invalidateStatus has the statuses of the pod read before a claim's payload, or a list, can settle
// it: a read did not know the state of the ID, so that nobody knows whether what is told of it came
// before that read or after.
func (x *item) invalidateStatus() {
	if x.cached == phaseNone && x.pod.hasStatus {
		x.cached = PhaseUnknown
	}
}

// watched is what Watch was told of an ID.
type watched struct {
	emitted Phase // phaseNone before the first time
	mask    uint8 // the events, one bit each: none is told twice of one ID
}

// once notes an event, unless it, or one that comes after it in a life, has been told. It reports
// whether it may be told.
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

// unconfirmedID is an ID that the stream told of and no read has shown yet.
type unconfirmedID struct {
	phase Phase
	at    instant // when the stream told of that phase
	stamp int64
}

// pod is what is known of one pod. It belongs to the core. A pod without items exists only while
// somebody wants to know of it, or the cache has a status of it.
//
// A node of 100,000 containers has 50,000 of these, of 320 bytes, and 150,000 items, of 104: a word
// more of either is seen in BenchmarkMemory.
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
	changedAt        instant // when a claim last changed something of it, known or suspected
	disagrees        bool    // the last applied read shows less than is known
	conflictReported bool    // that the runtime shows an ID of it of another pod, too, was reported
	callFailed       bool    // a call of the agent's own has: it may work yet, without anybody being told
	uncertainCreate  bool    // one that makes something has failed
	ready            int32   // running sandboxes
	own              own     // what the agent's own calls have told
}

// stored is what the cache has of a pod.
type stored struct {
	asOf      instant // start of the latest read that it stands for, global time aside
	hasStatus bool    // a status from a read
	foreign   bool    // a status from before this generator, or from somebody else
	failed    bool    // the error of the last inspection
	foreignID bool    // the status shows an ID that is believed to be another pod's
}

// hasEntry says that the cache holds something of the pod.
func (s *stored) hasEntry() bool { return s.hasStatus || s.foreign || s.failed }

// wanted is what others want of a pod.
type wanted struct {
	want    instant // a read must begin after this: somebody waits for it, or the core needs it
	waited  instant // the latest time of those that others than the core have asked for; 0 if none is left
	force   instant // statuses must be read by a read begun after this, changed or not
	forced  instant // when the last such read was started
	syncDue bool    // such a read was stored: Watch is told at least a PodSync
	// lost: an ID that Watch or the cache has told of turned out to be another pod's. Once force is
	// answered, Watch is told a PodSync, whatever else it is told.
	reassigned bool
}

// asked says that somebody wants a read of the pod.
func (w *wanted) asked() bool { return w.want != 0 || w.force != 0 }

// served notes that the cache has the pod as of that time: whoever wanted no more has it.
func (w *wanted) served(asOf instant) {
	if w.want != 0 && asOf > w.want {
		w.want = 0
	}
	if w.waited != 0 && asOf > w.waited {
		w.waited = 0
	}
}

// answered notes that a status as of that time was stored: whoever wanted it read is to hear of it.
func (w *wanted) answered(at instant) {
	if w.force != 0 && at > w.force {
		w.force, w.syncDue = 0, true
	}
}

// queueing is where a pod waits for its next read.
type queueing struct {
	queued   queueKind
	reading  bool    // it is among the core's reads under way, which it is asked for more than the map bears
	slow     bool    // its last read took so long that it counts as hung
	affected bool    // it is among the core's pods to be reviewed
	laterAt  instant // its earliest entry in the heap of pods to look at later; 0 if none
}

// lastList is what the last list of everything showed of a pod.
type lastList struct {
	listing      []Item // until an inspection has used it; nil if used
	listingBegan instant
	seenIn       uint64 // the list that showed it last, to detect pods shown twice and pods gone
	// contested is what that list showed of it that is believed to be another pod's: a later list
	// may say so by saying nothing.
	conflicts map[string]Item
}

// noteChange notes that something of the pod has changed, which is read at once.
func (p *pod) noteChange(now instant) {
	p.changedAt = now
	p.delays.expedite()
}

// servedBy says that a read begun at the given time is late enough for all that is wanted of the
// pod, and for all that claims have told of it.
func (p *pod) servedBy(began instant) bool {
	return began > p.want && began > p.force && began >= p.changedAt
}

// add gives the pod an item.
func (p *pod) add(x *item) {
	x.at = len(p.items)
	p.items = append(p.items, x)
}

// remove takes an item from the pod: the last one takes its place, so that a pod that loses many
// IDs one by one is not walked through for each.
func (p *pod) remove(x *item) {
	end := len(p.items) - 1
	last := p.items[end]
	p.items[x.at], last.at = last, x.at
	p.items[end] = nil
	p.items = p.items[:end]
}

// addConflict notes that the last list showed an ID of the pod that is believed to be another's.
func (p *pod) addConflict(it Item) {
	if p.conflicts == nil {
		p.conflicts = make(map[string]Item)
	}
	p.conflicts[it.ID] = it
}

// listingServes says that what the last list showed of the pod is all that an inspection needs, and
// no older than what is stored.
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

// find returns the item of that ID, nil if the pod has none.
func (p *pod) find(id string) *item {
	for _, x := range p.items {
		if x.id == id {
			return x
		}
	}
	return nil
}

// settled says that the cache shows the pod as it is known: every live ID in its phase, and no
// other.
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

// hasUnconfirmed says that a suspect of the pod may exist.
func (p *pod) hasUnconfirmed() bool {
	if len(p.unconfirmed) == 0 {
		return false // as it nearly always is; and each change asks several times
	}
	for _, s := range p.unconfirmed {
		if s.phase != PhaseRemoved {
			return true
		}
	}
	return false
}

// unsure says that the pod must be read to know how it is.
func (p *pod) unsure() bool {
	return !p.settled() || p.disagrees || p.failed || p.foreignID || p.hasUnconfirmed() || p.statusUnknown()
}

// statusUnknown says that of the pod's status and the last list one knows the state of an ID and
// the other does not: the statuses must be read, whatever a listing of the pod shows.
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

// inTeardown says that the pod has a sandbox that is not ready: its end may never be told. Whoever
// has stopped it himself removes it himself, and tells that, too.
func (p *pod) inTeardown() bool {
	for _, x := range p.items {
		if x.kind == Sandbox && x.phase == PhaseExited && (!x.stoppedByAgent || p.callFailed) {
			return true
		}
	}
	return false
}

// ladder is a delay that doubles: each step is as long as all before it. The zero ladder has not
// been climbed, and delays nothing.
type ladder struct {
	step time.Duration // the last delay; 0 at the foot
	end  instant       // when it is over
}

// climb begins a delay, after a read that began at the given time: the next longer one, within
// least and most, or the same again if that read had not waited for the end of the last. Lists and
// waiters come when others want them, and a dozen within some milliseconds must not put the next
// read off by minutes. It returns the end.
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

// climbed says that something is delayed.
func (l *ladder) climbed() bool { return l.step != 0 }

// delays are when a pod is read again without anybody wanting it.
type delays struct {
	notYet   instant // not before this: the end of one of the ladders, or at once
	reread   ladder  // while the pod is unsure
	teardown ladder  // while it is looked whether the pod has gone
	backoff  ladder  // after failures, from the first to the next success
}

// expedite has nothing wait any more, because something has changed: whatever is unsure is read at
// once. Failures still delay each other.
func (d *delays) expedite() { d.notYet, d.reread = 0, ladder{} }

// settle ends the delays of a pod of which nothing is in doubt.
func (d *delays) settle() { d.reread, d.backoff = ladder{}, ladder{} }

// instant is a moment by the monotonic clock, in nanoseconds since the generator was made. Zero is
// before everything, and often stands for none. Whatever was before the generator was made, as the
// moments that waiters ask for may be, is 1, and the clock shows 2 at least: so the first read
// begins after all of those. An instant is a third of a time.Time and orders the same way whatever
// the wall clock does.
//
// Arithmetic of instants never overflows: a sum stops at zero and at never, whatever the duration.
type instant int64

// never is later than everything, and stays so whatever is added to it or taken away.
const never = instant(math.MaxInt64)

// add returns the moment d after i, or before i if d is negative.
func (i instant) add(d time.Duration) instant {
	switch {
	case i == never || d > 0 && i > never-instant(d):
		return never
	}
	return max(0, i+instant(d)) // i is not negative, so this does not overflow for a negative d
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

// sub returns how long after j the moment i is. Neither is negative, so the difference fits.
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// doubled returns twice a delay, or most if that is less.
func doubled(d, most time.Duration) time.Duration {
	if d > most/2 {
		return most
	}
	return 2 * d
}

// sum returns the sum of two delays, or the longest there is.
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
