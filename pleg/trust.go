// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"time"
)

// trust is the judgement of the event stream, and the relist period that follows from the
// judgement. The room knows no pods: reads report changes here, and trust asks an ID whether an
// event has come since.
//
// Trust is earned by lists without an unannounced change. Trust is lost by an unannounced change,
// by an event refuted by a read, by a phase taken back by a read, and with the stream.
type trust struct {
	sched schedule

	// grace is Config.Grace: how long a change found by a read waits for its event.
	grace time.Duration `prove:"-"`

	// eventsSince is when the runtime first had an event stream; zero while the runtime is known
	// to have none. Changes from before are not judged.
	eventsSince instant `prove:"begins,unjudged:marks"`

	// lastClaim is when a claim last came; zero before the first.
	lastClaim instant `prove:"marks"`

	// lastDiscard is when a claim was last discarded for want of room; zero before the first. The
	// stream is not to blame for changes around that time.
	lastDiscard instant

	// open are the changes whose grace has not passed and the credit of the lists that found
	// them, in the order in which they were found.
	open fifo[change]

	// refuted are the claims refuted and the phases taken back by reads in the present turn.
	// settle empties it: between turns it is empty.
	refuted findings `prove:"-"`

	// refutedAt is when refuted was last emptied; zero before the first. A list begun before
	// earns nothing.
	refutedAt instant `prove:"-"`

	mute muteStream

	// creations and removals are the runtime's habits.
	creations, removals habit `prove:"-"`
}

func newTrust(cfg *limits) trust {
	return trust{sched: newSchedule(cfg.RelistBase, cfg.RelistMax), grace: cfg.Grace}
}

// subject is the ID of a change, as trust sees it.
type subject interface {
	// announced returns the furthest phase an event or an own call has reported of the ID.
	announced() Phase
	// busy reports whether an own call about the ID's pod is under way.
	busy() bool
	// mistaken reports whether the ID was called removed and is back: it never changed.
	mistaken() bool
	// title names the ID for people.
	title() string
}

// change is a change of an ID found by a read without a claim before. A claim within the grace
// announces the change; else the stream has missed the change, or nobody could listen.
type change struct {
	// of is the changed ID; nil for the credit of a list, which is given once all changes in
	// front have been settled and none was missed.
	of subject

	// phase is the phase the read showed.
	phase Phase

	// unknown reports whether the runtime has lost or found the state of the ID: to or from
	// PhaseUnknown, with phase the phase before.
	unknown bool

	// ran reports whether a removed ID was running.
	ran bool

	// content reports whether the status of a pod has changed beside its phases: no event announces
	// such a change.
	content bool `prove:"-"`

	// found is when the read was applied.
	found instant

	// stream is when the stream was connected that was up ever since the last read without the
	// change; zero if none was: nobody could listen all the while.
	stream instant

	// deadline is the end of the grace. It moves on while an own call is under way.
	deadline instant `prove:"timers"`
}

// discovery is a change as a read finds it.
type discovery struct {
	of      subject
	phase   Phase
	unknown bool
	ran     bool
	content bool

	// since is the begin of the last read without the change.
	since instant

	// stream is when the stream was connected; zero while it is down.
	stream instant
}

// opening notes that a stream is being opened.
func (t *trust) opening() { t.mute = muteStream{} }

// connected notes that a stream is connected, at a moment with which later reads are compared. A
// relist follows at once, so that no earlier change is missing.
func (t *trust) connected(at, now instant) {
	if t.eventsSince == 0 {
		t.eventsSince = at
	}
	t.sched.reset(now)
	t.sched.askAtOnce(now)
}

// note takes a discovery, and reports whether it is to be judged: the runtime has events, and
// none has announced the change.
func (t *trust) note(d discovery, now instant) bool {
	if t.eventsSince == 0 || d.since <= t.eventsSince {
		return false
	}
	e := change{
		of:       d.of,
		phase:    d.phase,
		unknown:  d.unknown,
		ran:      d.ran,
		content:  d.content,
		found:    now,
		deadline: now.add(t.grace),
	}
	if e.announced() {
		return false
	}
	if d.stream != 0 && d.since > max(d.stream, t.lastDiscard) {
		e.stream = d.stream
	}
	t.open.push(e)
	return true
}

// credit raises the relist period for a list: at once if the list found nothing unannounced, else
// once claims have confirmed every change found so far. A read may see a change before its event.
func (t *trust) credit(quiet bool, now instant) {
	if quiet && t.open.len() == 0 {
		t.sched.lengthen(now)
		return
	}
	t.open.push(change{found: now, deadline: now.add(t.grace)})
}

// revoke takes the relist period back to the base, and drops the credit of lists. The changes
// found by them are still settled.
func (t *trust) revoke(now instant) {
	t.open.keep(func(e change) bool { return e.of != nil })
	t.sched.reset(now)
}

// refute notes that a read has refuted a claim, or taken back a phase of another read. settle
// follows in the same turn.
func (t *trust) refute(what string) { t.refuted.add(what) }

// verdict is what settle has found.
type verdict struct {
	// settled are the changes whose grace has passed: nobody asks for their IDs any more.
	settled []change

	// missed are the counts of changes that the stream should have announced, unheard those while
	// nobody could listen.
	starts, exits, creations, removals, unknowns int
	unheard                                      int

	// reports are to be made, paced.
	reports []Report

	// mute reports whether the stream is to be ended and opened anew: a runtime that has
	// forgotten its subscriber shows no other sign.
	mute bool
}

// settle judges the changes whose grace has passed, and the claims refuted by reads in this turn.
// Stream is when the stream was connected; zero while the stream is down. A missed change costs
// trust: a creation or a removal only if the runtime announces such, because runtimes differ in the
// events that they send for them. These are counted apart (KEP-3386: kube_pod_missed_events).
func (t *trust) settle(stream, now instant) (v verdict) {
	if t.refuted.n > 0 {
		t.refutedAt = now
		t.revoke(now)
		v.reports = append(v.reports, t.report(ReasonEventsOverruled, "reads refute events of the runtime, or earlier reads: %v", t.refuted))
		t.refuted = findings{}
	}
	var missed, unheard findings
	first := never // when the first missed change was found
	for {
		e, ok := t.open.front()
		if !ok || e.deadline > now {
			break
		}
		t.open.pop()
		if e.of == nil {
			if missed.n == 0 && stream != 0 {
				t.sched.lengthen(now)
			}
			continue
		}
		if e.of.mistaken() {
			continue
		}
		if e.of.busy() && !e.announced() { // the change may be the effect of the call
			e.deadline = now.add(t.grace)
			t.open.push(e)
			continue
		}
		v.settled = append(v.settled, e)
		switch t.judge(&e, stream) {
		case changeMissed:
			v.count(&e)
			if t.price(&e) {
				missed.add(e.String())
				if !e.content { // no stream carries events of those
					first = min(first, e.found)
				}
			}
		case changeUnheard:
			if e.costs() && !e.content {
				unheard.add(e.String())
			}
		}
	}
	if unheard.n > 0 {
		v.unheard = unheard.n
		v.reports = append(v.reports, Report{
			Reason: ReasonChangesUnheard,
			Action: "Relist",
			Note:   "containers or sandboxes changed while no event could be heard; reads found them: " + unheard.String(),
		})
	}
	if missed.n > 0 {
		t.revoke(now)
		v.reports = append(v.reports, t.report(ReasonEventsMissed, "the runtime changed containers or sandboxes without an event: %v", missed))
		if first != never {
			v.mute = t.checkMute(first, now)
		}
	}
	return v
}

// stood notes that the generator has stood still until now: the events of changes may have come
// meanwhile, and are heard soon.
func (t *trust) stood(now instant) {
	for range t.open.len() {
		e := t.open.pop()
		e.deadline = max(e.deadline, now.add(t.grace))
		t.open.push(e)
	}
}

// check reports each violated invariant of the room, between two turns.
func (t *trust) check(check checker, now instant) {
	s := &t.sched
	within := s.base <= s.period && s.period <= s.longest
	check(within && s.ended <= now && s.raised <= now, "schedule %+v at %d", *s, now)
	check(t.refuted.n == 0, "refuted claims are not settled: %v", t.refuted)
}

// changeVerdict is the verdict on one change.
type changeVerdict uint8

const (
	changeAnnounced changeVerdict = iota // by an event, or by an own call
	changeMissed                         // the stream was up all the while and said nothing
	changeUnheard                        // nobody could listen all the while
)

// judge returns the verdict on a change whose grace has passed. An event of a later phase announces
// a creation. Such an event announces a start or an end only if the event came after the change was
// found, on the same stream: otherwise the event of the start or end is missing.
func (t *trust) judge(e *change, stream instant) changeVerdict {
	heard := e.stream != 0 && e.stream == stream && e.found > t.lastDiscard
	ofLife := !e.unknown && !e.content &&
		(e.phase == PhaseRunning || e.phase == PhaseExited)
	onlyLater := ofLife && e.of.announced() > e.phase
	switch {
	case e.announced() && !onlyLater:
		return changeAnnounced
	case onlyLater && heard && t.lastClaim >= e.found:
		return changeAnnounced
	case heard:
		return changeMissed
	}
	return changeUnheard
}

// announced reports whether an event or an own call has reported the change, or a later one.
func (e *change) announced() bool {
	if e.content {
		return false
	}
	if e.unknown {
		return e.of.announced() > e.phase
	}
	return e.of.announced() >= e.phase
}

// costs reports whether a missed change costs trust whatever the runtime's habits are.
func (e *change) costs() bool {
	return e.unknown || e.ran || e.content ||
		e.phase == PhaseRunning || e.phase == PhaseExited
}

// String names a change for people.
func (e *change) String() string {
	if e.content {
		return "the status of pod " + e.of.title() + " has changed beside its phases"
	}
	if e.unknown {
		return e.of.title() + " is or was in a state unknown to the runtime"
	}
	return e.of.title() + " is " + e.phase.String()
}

// count counts a missed change.
func (v *verdict) count(e *change) {
	switch {
	case e.content: // counted when found
	case e.unknown:
		v.unknowns++
	case e.phase == PhaseRunning:
		v.starts++
	case e.phase == PhaseExited:
		v.exits++
	case e.phase == PhaseRemoved:
		v.removals++
	default:
		v.creations++
	}
}

// silentMost is the number of creations, and of removals, after which a runtime that has
// announced none is known to announce none.
const silentMost = 3

// habit is whether the runtime announces creations, or removals: runtimes differ.
type habit struct {
	// told reports whether an event has announced one.
	told bool

	// silent is the number of those that none has announced while none was told, at most
	// silentMost.
	silent int
}

// miss notes a change without an event, and reports whether the change costs trust.
func (h *habit) miss() bool {
	if h.told {
		return true
	}
	if h.silent == silentMost {
		return false
	}
	h.silent++
	return true
}

// heard notes a claim of a creation or of a removal.
func (t *trust) heard(phase Phase) {
	switch phase {
	case PhaseCreated:
		t.creations.told = true
	case PhaseRemoved:
		t.removals.told = true
	}
}

// price reports whether a missed change costs trust.
func (t *trust) price(e *change) bool {
	switch {
	case e.costs():
		return true
	case e.phase == PhaseRemoved:
		return t.removals.miss()
	}
	return t.creations.miss()
}

// report returns the report of lost trust, with the relist period that follows.
func (t *trust) report(reason Reason, note string, what findings) Report {
	return Report{
		Reason:  reason,
		Action:  "Relist",
		Warning: true,
		Note:    fmt.Sprintf(note, what) + fmt.Sprintf("; relisting every %v", t.sched.period),
	}
}

// muteStream tells a stream with lost events from a stream that hangs open without events.
type muteStream struct {
	// missed is since when events are missing, on the present stream; zero if none is.
	missed instant

	// ending reports whether the stream is being ended as mute.
	ending bool
}

// checkMute handles missed changes, the first of which a read found at the given time, and
// reports whether the stream is mute: events were missed before that, and no claim has come
// since.
func (t *trust) checkMute(found, now instant) bool {
	m := &t.mute
	switch {
	case m.ending:
	case m.missed == 0 || t.lastClaim >= m.missed:
		m.missed = now
	case found > m.missed:
		m.ending = true
		return true
	}
	return false
}

// due returns when settle has something to do next.
func (t *trust) due() instant {
	if e, ok := t.open.front(); ok {
		return e.deadline
	}
	return never
}

// schedule decides when the next relist is due. The period starts at the base; doubles, once in a
// period at most, with each relist that earns trust; and falls back to the base when trust is
// lost.
type schedule struct {
	// base and longest bound the period: Config.RelistBase and RelistMax.
	base, longest time.Duration

	// period is the time from the end of a relist to the next, within base and longest.
	period time.Duration

	// ended is when the last relist ended, well or not; zero before the first.
	ended instant `prove:"dated"`

	// raised is when the period last changed.
	raised instant `prove:"-"`

	// asked is when a relist was requested before its time; never if none was since the last
	// began.
	asked instant `prove:"marks"`

	// askedNow reports whether the requested relist need not wait for the base period.
	askedNow bool
}

func newSchedule(base, longest time.Duration) schedule {
	return schedule{
		base:    base,
		longest: longest,
		period:  base,
		asked:   never,
	}
}

// due returns when the next relist shall begin: at the start, a period after the last relist, or
// on request, but no sooner than a base period after the last relist unless the request cannot
// wait.
func (s *schedule) due() instant {
	if s.ended == 0 {
		return 0
	}
	due := s.ended.add(s.period)
	if s.asked == never {
		return due
	}
	if s.askedNow {
		return min(due, max(s.asked, s.ended.next())) // lists begin at different times
	}
	return min(due, max(s.asked, s.ended.add(s.base)))
}

// ask requests a relist that begins after now, as soon as the base period allows.
func (s *schedule) ask(now instant) {
	s.asked = min(s.asked, now)
}

// askAtOnce requests a relist that begins after now and does not wait for the base period.
func (s *schedule) askAtOnce(now instant) {
	s.asked = min(s.asked, now)
	s.askedNow = true
}

// begun notes that a relist has begun: requests from before are met.
func (s *schedule) begun() {
	s.asked = never
	s.askedNow = false
}

// relisted notes that the relist under way has ended, well or not.
func (s *schedule) relisted(now instant) { s.ended = now }

// lengthen doubles the period.
func (s *schedule) lengthen(now instant) {
	if now.sub(s.raised) < s.period {
		return
	}
	s.period = doubled(s.period, s.longest)
	s.raised = now
}

// reset takes the period back to the base.
func (s *schedule) reset(now instant) {
	s.period = s.base
	s.raised = now
}
