// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// phaseNone is the phase of an ID not yet shown.
const phaseNone = Phase(0xff)

// item is one sandbox or container in the status of a pod. Items change in core.store only, except
// for claimed, cause and stamp, on which no status and no freshness depends.
type item struct {
	id, name string
	pod      *pod
	stamp    int64  // of the claim of the claimed phase, Unix nanoseconds; 0 if none
	mark     uint64 // the last comparison that met the ID
	kind     Kind
	shown    Phase // in the status; PhaseUnknown if the runtime did not know
	phase    Phase // shown, or the phase before PhaseUnknown was shown
	claimed  Phase // the furthest phase that an event or an own call has reported
	cause    Cause // of the claimed phase
	sent     uint8 // the events sent, a bit each: every event is sent once
}

// expectation is a phase of an ID, reported by an event or an own call, and confirmed by no read.
// An expectation causes reads and changes nothing else. A pod has at most two of an ID, one of each
// cause: events may be false, so an event never hides what a call reports.
type expectation struct {
	reportKey
	kind   Kind
	phase  Phase
	stored bool    // a payload has been stored with this phase: no read is due
	at     instant // when the expectation arose
	stamp  int64   // of the event, Unix nanoseconds; 0 if none
}

// reportKey tells the expectations of a pod from each other.
type reportKey struct {
	id    string
	cause Cause // CauseAck: certain, and met by any later read
}

// pod is the record of a pod.
type pod struct {
	uid             cache.UID
	name, namespace string
	items           []*item
	expected        []expectation

	asOf    instant // begin of the read behind the cache entry, unless the global time is later
	entry   entryState
	reading bool
	queued  bool
	ready   int32 // sandboxes in PhaseRunning; here, because a pod fits into 256 bytes

	listed   []Item  // what the last list showed, while that differs from the items
	listedAt instant // begin of that list; 0 while the items are as listed
	agreed   instant // begin of the last list without a difference, while listedAt is not 0
	visited  instant // begin of the last list that named the pod

	want      instant // a read must begin after this; 0 if no read is wanted
	force     instant // a read of all statuses must begin after this; 0 if none is wanted
	forced    instant // when the last such read began
	notBefore instant // the end of a delay that does not hold up want and force
	retry     ladder
	later     instant // the earliest entry in core.later; 0 if none
	readEnd   instant // when the last read of the pod ended

	calls    int32   // own calls under way
	creating int32   // calls among them that make an ID
	due      instant // a read must begin after this, but not before hold; 0 if none is due
	hold     instant
	unlisted instant // unknown IDs may have been made until then; may be in the future
}

// entryState is the state of a pod's entry in the cache.
type entryState uint8

const (
	noEntry      entryState = iota
	foreignEntry            // written by an earlier generator
	statusEntry
	failedEntry // the last read failed; a status may stand beside the error
)

// differs reports whether the last list showed the pod otherwise than the cache does.
func (p *pod) differs() bool { return p.listedAt != 0 }

// unmet reports whether an expectation calls for a read.
func (p *pod) unmet() bool {
	return slices.ContainsFunc(p.expected, func(e expectation) bool { return !e.stored })
}

// expectation returns the expectation of an ID from events (CauseClaim) or from own calls
// (CauseAck), or nil.
func (p *pod) expectation(id string, cause Cause) *expectation {
	for e := range p.expectations(id) {
		if e.cause == cause {
			return e
		}
	}
	return nil
}

// expectations yields the expectations of an ID.
func (p *pod) expectations(id string) iter.Seq[*expectation] {
	return func(yield func(*expectation) bool) {
		for i := range p.expected {
			if e := &p.expected[i]; e.id == id && !yield(e) {
				return
			}
		}
	}
}

// announce notes that an event or an own call has reported a phase of the ID.
func (x *item) announce(e *expectation) {
	if e.phase > x.claimed || e.phase == x.claimed && e.cause == CauseAck {
		x.claimed, x.cause, x.stamp = e.phase, e.cause, e.stamp
	}
}

// unknown reports whether the status shows an ID in PhaseUnknown.
func (p *pod) unknown() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool { return x.shown == PhaseUnknown })
}

// teardown reports whether the pod has a sandbox that is not ready and whose removal may never be
// announced. A sandbox stopped by the agent itself is removed by a call of the agent, too.
func (p *pod) teardown() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool {
		return x.kind == Sandbox && x.phase == PhaseExited && x.cause != CauseAck
	})
}

// shownItems returns the items of the status in the cache.
func (p *pod) shownItems() []Item {
	items := make([]Item, len(p.items))
	for i, x := range p.items {
		items[i] = Item{ID: x.id, Kind: x.kind, Phase: x.shown}
	}
	return items
}

// rename takes the pod's name from a report with the name.
func (p *pod) rename(name, namespace string) {
	if name != "" || namespace != "" {
		p.name, p.namespace = name, namespace
	}
}

// title names the pod for people.
func (p *pod) title() string {
	if p.name == "" {
		return string(p.uid)
	}
	return p.namespace + "/" + p.name + " (" + string(p.uid) + ")"
}

// title names the ID for people.
func (x *item) title() string {
	name := x.id
	if x.name != "" {
		name = x.name + " (" + x.id + ")"
	}
	return x.kind.String() + " " + name + " of pod " + x.pod.title()
}

// inOrder returns pods sorted by UID, so that a history replays the same way.
func inOrder(pods map[*pod]struct{}) []*pod {
	if len(pods) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(pods), func(a, b *pod) int { return strings.Compare(string(a.uid), string(b.uid)) })
}

// valid reports whether an item of a read can stand in a record.
func (a Item) valid() bool { return a.ID != "" && a.Phase <= PhaseExited }

// sameItems reports whether two reports show the same IDs in the same phases.
func sameItems(a, b []Item) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.EqualFunc(a, b, func(x, y Item) bool { return x.ID == y.ID && x.Phase == y.Phase }) {
		return true // nearly always in the same order
	}
	phases := make(map[string]Phase, len(b))
	for _, it := range b {
		phases[it.ID] = it.Phase
	}
	for _, it := range a {
		if phase, ok := phases[it.ID]; !ok || phase != it.Phase {
			return false
		}
		delete(phases, it.ID)
	}
	return true
}

// ladder is a doubling delay: each step is as long as all before. The zero ladder delays nothing.
type ladder struct {
	step time.Duration // the last delay; 0 at the foot
	end  instant       // when the delay is over
}

// climb begins a delay after a read begun at the given time, and returns the end of the delay. The
// step doubles, within least and most, if that read had waited for the end of the last delay.
// Otherwise the step stays: reads for lists and waiters come at times of their own, and a dozen of
// them must not put the next read off by minutes.
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

// instant is a moment of the monotonic clock, in nanoseconds since the generator was made. Zero is
// before everything, and often means none. Any time before the generator was made, such as waiters
// may ask for, is 1, and the clock starts at 2: the first read begins after all of those.
//
// Arithmetic of instants never overflows: a sum stops at zero and at never, whatever the duration.
type instant int64

// never is later than every other instant; sums of never are never.
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
