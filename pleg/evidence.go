// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// expectation is a phase of an ID, reported by an event or an own call, and confirmed by no read.
// An expectation causes reads and changes nothing else. A pod has at most two of an ID, one of
// each cause: events may be false, so an event never hides what a call reports.
type expectation struct {
	reportKey

	// kind is a guess if the event does not say.
	kind Kind

	// name is the container's name, if a report has named it: a read by ID may not.
	name string

	// phase is the furthest phase reported.
	phase Phase

	// stored reports whether a payload has been stored with this phase: no read is due.
	stored bool

	// failed reports whether a failed call may have brought about the phase all the same.
	failed bool

	// ofGone reports, of an early report, whether looks had called the ID gone when it came: the report
	// is kept for looks that began by then, or a grace later, and no list is awaited.
	ofGone bool

	// sighting is of the ID while no read has shown it, and the agent has made it.
	sighting

	// at is when the report of that phase came. A read begun later decides about a call's report,
	// a read begun a grace later about an event's.
	at instant `prove:"dated"`

	// first is when an event first told of the ID what no read has confirmed, in whatever phase; zero
	// of a call's report. The delay for the agent's own calls counts from here.
	first instant `prove:"-,acks:dated"`

	// named is when an ID that no read has shown was last told of in an earlier phase; zero if it was
	// not. A look begun by then without the ID does not decide about the ID, but a look with the ID
	// decides about the phase: a sandbox that was told to have ended may be ready again, and named.
	named instant `prove:"marks"`

	// stamp is the runtime's time of the event, in Unix nanoseconds; zero if none.
	stamp int64 `prove:"-"`
}

// last returns when the ID was last told of.
func (e *expectation) last() instant { return max(e.at, e.named) }

// item returns the ID as it was reported.
func (e *expectation) item() Item {
	return Item{
		ID:    e.id,
		Kind:  e.kind,
		Phase: e.phase,
		Name:  e.name,
	}
}

// decides returns the time after which a look must begin to decide about the report, if a look has
// shown the ID before.
func (e *expectation) decides(grace time.Duration) instant {
	if e.cause == CauseClaim {
		return e.at.add(grace)
	}
	return e.at
}

// reportKey tells the expectations of a pod from each other.
type reportKey struct {
	id    string
	cause Cause // CauseAck: certain, and met by any later read
}

// compare orders keys by ID.
func (k reportKey) compare(l reportKey) int {
	return cmp.Or(strings.Compare(k.id, l.id), cmp.Compare(k.cause, l.cause))
}

// expectations are the expectations of a pod. Only evidence adds and drops any.
type expectations struct {
	all []expectation

	// at has the places of all; nil up to manyIDs.
	at map[reportKey]int `prove:"-"`
}

func (l *expectations) len() int { return len(l.all) }

// unmet reports whether an expectation calls for a read.
func (l *expectations) unmet() bool {
	return slices.ContainsFunc(l.all, func(e expectation) bool { return !e.stored })
}

// needNoRead notes that a stored status has all expected phases, as a payload that dominates has,
// or a status without what the agent has removed: no read is due.
func (l *expectations) needNoRead() {
	for i := range l.all {
		l.all[i].stored = true
	}
}

// unmetBeside reports whether an expectation calls for another read, after a read begun at the
// given time without the given unread IDs: about unread IDs only later reports call for a read.
func (l *expectations) unmetBeside(unread *idSet, began instant) bool {
	return slices.ContainsFunc(l.all, func(e expectation) bool {
		return !e.stored && (e.at > began || !unread.has(e.id))
	})
}

// unmetSince reports whether something was told after a moment that calls for a read.
func (l *expectations) unmetSince(began instant) bool {
	return slices.ContainsFunc(l.all, func(e expectation) bool { return !e.stored && e.at > began })
}

// get returns the expectation of an ID from events (CauseClaim) or from own calls (CauseAck), or
// nil.
func (l *expectations) get(id string, cause Cause) *expectation {
	if l.at != nil {
		i, ok := l.at[reportKey{id, cause}]
		if !ok {
			return nil
		}
		return &l.all[i]
	}
	for i := range l.all {
		e := &l.all[i]
		if e.id == id && e.cause == cause {
			return e
		}
	}
	return nil
}

// of yields the expectations of an ID.
func (l *expectations) of(id string) iter.Seq[*expectation] {
	return func(yield func(*expectation) bool) {
		for _, cause := range [...]Cause{CauseClaim, CauseAck} {
			e := l.get(id, cause)
			if e != nil && !yield(e) {
				return
			}
		}
	}
}

// add adds the only expectation of an ID and a cause.
func (l *expectations) add(e expectation) {
	l.all = append(l.all, e)
	if l.at != nil {
		l.at[e.reportKey] = len(l.all) - 1
	} else if len(l.all) > manyIDs {
		l.reindex()
	}
}

// drop removes the expectations for which gone is true.
func (l *expectations) drop(gone func(expectation) bool) {
	l.all = slices.DeleteFunc(l.all, gone)
	l.reindex()
}

// reindex makes the index anew, if there are many.
func (l *expectations) reindex() {
	l.at = nil
	if len(l.all) <= manyIDs {
		return
	}
	l.at = make(map[reportKey]int, 2*len(l.all))
	for i := range l.all {
		l.at[l.all[i].reportKey] = i
	}
}

// evidence takes the reports of events and own calls, and settles them by reads. It makes and
// drops expectations, and knows no queue: the core has the pods read.
type evidence struct {
	// grace is Config.Grace: a read begun that long after an event decides about the event.
	grace time.Duration `prove:"-"`

	// most is Config.UnconfirmedMax: the bound on early, and on expectations by events of IDs
	// that no read has shown.
	most int `prove:"-"`

	// early are the reports of IDs no status shows: removals, events that name no pod, and what
	// is told of IDs that have just gone. They are taken with the read or the list that shows the ID.
	early map[reportKey]expectation

	// expected is the number of expectations of all pods.
	expected int
}

func newEvidence(cfg *limits) evidence {
	return evidence{grace: cfg.Grace, most: cfg.UnconfirmedMax, early: make(map[reportKey]expectation)}
}

// taken is how a report was taken.
type taken uint8

const (
	takenStale  taken = iota // nothing new
	takenNews                // an expectation now: the pod is to be read
	takenNoRoom              // news, discarded: a list has to replace the report
)

// expect adds a report to the expectations of a pod. X is the ID's item in the pod, nil if there
// is none; shown reports whether a read has shown the ID in any pod.
func (v *evidence) expect(p *pod, x *item, e expectation, shown bool) taken {
	if x != nil {
		x.announce(&e)
		if e.phase < x.phase || e.phase == x.phase && x.shown != PhaseUnknown {
			return takenStale
		}
	}
	old := p.expected.get(e.id, e.cause)
	switch {
	case old == nil && v.expected >= v.most && !shown && e.cause == CauseClaim:
		return takenNoRoom
	case old == nil:
		p.expected.add(e)
		v.expected++
		return takenNews
	case e.phase > old.phase:
		e.at = max(e.at, old.at) // an early one may be older
		e.first = min(e.first, old.first)
		e.named = max(e.named, old.named)
		e.name = cmp.Or(e.name, old.name)
		*old = e
		return takenNews
	case old.failed && !e.failed && e.phase < old.phase: // the ID lived on: a later call has worked
		*old = e
		if x != nil {
			x.retract()
			for known := range p.expected.of(e.id) {
				x.announce(known)
			}
		}
		return takenNews
	}
	switch { // a look from before this report does not decide about either
	case old.failed && e.phase == old.phase,
		x == nil && old.phase < PhaseRemoved && e.phase == old.phase:
		old.at = max(old.at, e.at)
	case x == nil && old.phase < PhaseRemoved:
		old.named = max(old.named, e.at)
	}
	old.failed = old.failed && e.failed // what may have happened has
	return takenStale
}

// expectEarly keeps the report of an ID no status shows. A removal needs no read, nor does
// what is told of an ID that has gone, but a read under way, or begun within the grace, may still
// show the ID.
func (v *evidence) expectEarly(e expectation) taken {
	old, ok := v.early[e.reportKey]
	if ok && old.phase >= e.phase {
		again := old.phase == e.phase && e.phase < PhaseRemoved && !e.ofGone
		switch { // a look from before this report does not decide about either
		case e.phase == old.phase:
			old.at = max(old.at, e.at)
			old.failed = old.failed && e.failed
		case old.phase == PhaseRemoved:
			old.at = max(old.at, e.at)
		default:
			old.named = max(old.named, e.at)
		}
		v.early[e.reportKey] = old
		if again {
			return takenNews // nor does a list
		}
		return takenStale
	}
	if !ok && len(v.early) >= v.most {
		return takenNoRoom
	}
	if ok {
		e.first = old.first
	}
	v.early[e.reportKey] = e
	return takenNews
}

// toldRemoved reports whether an event has told of the removal of an ID no status shows.
func (v *evidence) toldRemoved(id string) bool {
	return v.early[reportKey{id, CauseClaim}].phase == PhaseRemoved
}

// takeEarly returns an early report of an ID, which is early no longer.
func (v *evidence) takeEarly(id string, cause Cause) (e expectation, ok bool) {
	key := reportKey{id, cause}
	e, ok = v.early[key]
	e.ofGone = false
	delete(v.early, key)
	return e, ok
}

// prune drops the early reports a list begun at the given time would have shown, had any
// read under way, the oldest of which began then, not been able to show the ID later.
func (v *evidence) prune(reads pruning) {
	maps.DeleteFunc(v.early, func(_ reportKey, e expectation) bool {
		listed := e.phase == PhaseRemoved || e.ofGone || e.last() < reads.global
		return listed && max(e.at.add(v.grace), e.named) < reads.oldest
	})
}

// pruning are the begins of the reads that decide what may be forgotten.
type pruning struct {
	oldest instant // of the oldest read under way; now if there is none
	global instant // of the last list whose pods have all been read
}

// settlement is a look at a pod that has been applied, for resolve.
type settlement struct {
	pod *pod

	// began is the begin of the look.
	began instant

	// reading is the begin of the read of the pod that is still under way; zero if there is none.
	reading instant

	// unread are the IDs whose phases were not looked at; nil if all were.
	unread *idSet
}

// refutation is a report a read has refuted.
type refutation struct {
	of    *item
	phase Phase // reported
}

// resolve drops the expectations of a pod that a look has met or refuted, and returns the refuted
// claims. A claim is refuted if the look began a grace later and shows less: runtimes announce a
// removal before their reads show the removal. No runtime announces a creation, a start or an end
// before its reads show the ID, so a read begun later without the ID refutes the claim.
func (v *evidence) resolve(r *records, s settlement) (refuted []refutation) {
	p := s.pod
	if p.expected.len() == 0 {
		return nil
	}
	v.expected -= p.expected.len()
	p.expected.drop(func(e expectation) bool {
		if s.unread.has(e.id) {
			return false
		}
		x := r.find(p, 0, e.id)
		gone, refutes := v.judge(&e, x, &s)
		if refutes {
			refuted = append(refuted, refutation{of: x, phase: e.phase})
		}
		return gone
	})
	for i := range p.expected.all {
		e := &p.expected.all[i]
		if x := r.find(p, 0, e.id); x != nil {
			x.announce(e) // the refuted one of two may have lowered x.claimed
			e.named = 0   // a look has shown the ID
		}
	}
	v.expected += p.expected.len()
	return refuted
}

// judge reports whether an expectation is over, and whether the look refutes a claim. X is the
// ID's item; nil if the look does not show the ID.
func (v *evidence) judge(e *expectation, x *item, s *settlement) (gone, refutes bool) {
	switch {
	case x == nil && e.phase == PhaseRemoved:
		v.keepRemoval(e, s.began)
		return true, false
	case x == nil:
		return s.began > e.last(), false
	case e.cause == CauseAck:
		later := s.began > e.at
		if later && x.phase < e.phase {
			x.retract() // the call has failed, and explains no later change
		}
		return later, false
	case x.phase >= e.phase && x.shown != PhaseUnknown:
		mayShowLess := s.reading != 0 && s.reading <= e.at
		return !mayShowLess, false
	case s.began <= e.at.add(v.grace):
		return false, false
	case x.shown == PhaseUnknown:
		return true, false
	}
	x.retract()
	return true, true
}

// overrule drops the reports the statuses of a look refute, whatever becomes of the look, and
// returns the claims among them. The look began after the end of the call, or a grace after the
// event. A next such report is news then, and a next look without the ID is the first.
func (v *evidence) overrule(r *records, p *pod, shows []Item, began instant) (refuted []refutation) {
	for _, cause := range [...]Cause{CauseClaim, CauseAck} {
		for x, e := range v.beyond(r, p, shows, cause) {
			if began <= e.decides(v.grace) {
				continue
			}
			if cause == CauseClaim {
				refuted = append(refuted, refutation{of: x, phase: e.phase})
			}
			v.forget(p, x, e.reportKey)
		}
	}
	return refuted
}

// disprove drops what failed calls may have done, if a look begun later does not show it: the calls
// explain no later change.
func (v *evidence) disprove(r *records, p *pod, shows []Item, began instant) {
	for x, e := range v.beyond(r, p, shows, CauseAck) {
		if e.failed && began > e.at {
			v.forget(p, x, e.reportKey)
		}
	}
}

// beyond yields what is reported of the items in a look at some of the pod, where the look shows
// less than the report, as the record does. What is yielded may be dropped.
func (v *evidence) beyond(r *records, p *pod, shows []Item, cause Cause) iter.Seq2[*item, *expectation] {
	return func(yield func(*item, *expectation) bool) {
		for i := 0; i < len(shows) && p.expected.len() > 0; i++ {
			it := shows[i]
			x := r.find(p, i, it.ID)
			e := p.expected.get(it.ID, cause)
			if x == nil || e == nil ||
				it.Phase != x.phase || it.Phase == PhaseUnknown ||
				it.Phase >= e.phase {
				continue
			}
			if !yield(x, e) {
				return
			}
		}
	}
}

// forget drops an expectation that a look has refuted. What else is expected of the ID stands.
func (v *evidence) forget(p *pod, x *item, key reportKey) {
	p.expected.drop(func(e expectation) bool { return e.reportKey == key })
	v.expected--
	x.retract()
	for e := range p.expected.of(x.id) {
		x.announce(e)
	}
}

// disputed reports whether a look begun at the given time would refute a claim, or what a call has
// done, by the last shown phases of the pod. Lists may show gone IDs for ever, so that only a
// status can refute either.
func (v *evidence) disputed(r *records, p *pod, began instant) bool {
	for i := range p.expected.all {
		e := &p.expected.all[i]
		if e.failed || began <= e.decides(v.grace) {
			continue
		}
		if x := r.find(p, 0, e.id); x != nil && x.phase < e.phase &&
			x.shown != PhaseUnknown {
			return true
		}
	}
	return false
}

// keepRemoval remembers a removal that a read has met: another read, begun earlier or within the
// grace, may still show the ID.
func (v *evidence) keepRemoval(e *expectation, began instant) {
	if began > e.at.add(v.grace) || len(v.early) >= v.most {
		return
	}
	kept := *e
	kept.at = max(e.at, v.early[e.reportKey].at)
	v.early[e.reportKey] = kept
}

// check reports each violated invariant of the room: its count and the indexes of the pods agree
// with their expectations.
func (v *evidence) check(check checker, pods map[cache.UID]*pod) {
	expected := 0
	for uid, p := range pods {
		expected += p.expected.len()
		for i := range p.expected.all {
			e := &p.expected.all[i]
			if p.expected.get(e.id, e.cause) != e {
				check(false, "expectation %+v of pod %q is not found", e, uid)
			}
		}
		n := p.expected.len()
		at := p.expected.at
		if (n > manyIDs) != (at != nil) || at != nil && len(at) != n {
			check(false, "%d expectations of pod %q, %d of them indexed", n, uid, len(at))
		}
	}
	check(expected == v.expected, "%d expectations in pods, %d counted", expected, v.expected)
}
