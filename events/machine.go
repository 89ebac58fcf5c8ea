// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import "time"

// phase is how far one series has come at the API server.
type phase uint8

const (
	settling phase = iota // nothing of the series is known to be stored
	single                // stored without a series field
	ongoing               // stored with a series field
	rejected              // refused by the server; a tombstone, so that a hot loop costs no calls
	closed                // nothing more to do; to be forgotten
)

// closing is why a series takes no further occurrences.
type closing uint8

const (
	notClosing closing = iota
	finished           // the threshold passed without an occurrence
	evicted            // pushed out of the table, or abandoned by a process that was killed
	suspended          // the recorder shuts down
)

// The states of the redesign proposal, kept as an annotation because the v1 API has no field for
// them.
const (
	stateOngoing  = "Ongoing"
	stateFinished = "Finished"
	stateUnknown  = "Unknown" // nobody counts any more: evicted, shut down, killed
)

// opKind is one kind of API call.
type opKind uint8

const (
	opNone opKind = iota
	opCreate
	opPatch
)

// String is the kind's name in metrics.
func (k opKind) String() string {
	return [...]string{"none", "create", "patch"}[k]
}

// op is a call that a series wants made. It is a snapshot: later occurrences do not change it.
type op struct {
	kind   opKind
	count  int64  // occurrences that the object tells of once the call succeeded
	series bool   // whether the object has the series field
	state  string // the state annotation, "" for a singleton
	loose  bool   // the count is a lower bound
	last   time.Time
	final  bool // the last call of this series
}

// inputKind says what happened to a series.
type inputKind uint8

const (
	inOccurred inputKind = iota // an isomorphic event was emitted
	inTick                      // a deadline may have come
	inClose                     // evict or suspend the series
	inSend                      // a writer is free: which call?
	inDone                      // the call succeeded
	inMissing                   // the call met 404: the object is not there
	inExists                    // a create met the object that an earlier try had made
	inRefused                   // the call was refused for good
	inFailed                    // the call failed and may or may not have been carried out
)

type input struct {
	kind    inputKind
	now     time.Time
	rand    float64 // in [0,1), for jitter
	op      op      // inDone … inFailed: the call
	closing closing // inClose
}

// effects is what the caller of step must do.
type effects struct {
	op     op        // inSend: the call to make, opNone if there is nothing to do
	owes   bool      // the series owes the server a call
	reopen bool      // the occurrence was not taken: it begins another series
	forget bool      // drop the series from memory
	acked  int64     // occurrences that the server has now been told of
	lost   int64     // occurrences that the server never will be told of
	wake   time.Time // the next deadline, zero for none
}

// state is a series without its identity. It is a value: step returns the next one.
type state struct {
	phase    phase
	closing  closing
	recreate bool  // the stored object has gone: write it whole
	retried  bool  // a create failed before and may have got through: the name may be taken by ourselves
	dirty    bool  // one more write is wanted whatever the count
	killed   bool  // continues an Ongoing object, and nothing has occurred since: its end is not known
	loose    bool  // a killed process counted part of the occurrences: the count is a lower bound
	early    int   // index of the next early count
	count    int64 // occurrences, those of adopted predecessors included
	stored   int64 // of these, told to the server
	// eventTime is that of the object; last is the last occurrence.
	eventTime, last time.Time
	adopted         time.Time // when the series was taken over from an earlier process: silence counts from there
	heartbeat       time.Time // when the next one is due; for rejected: when the tombstone goes
}

// policy is the part of Options that step needs.
type policy struct {
	threshold time.Duration
	heartbeat time.Duration
	early     []int64 // ascending
}

// continued is for how long after its last stored time an Ongoing object may be continued: the
// process that was killed may have seen occurrences until just before its next heartbeat.
func (p *policy) continued() time.Duration { return p.heartbeat*11/10 + p.threshold }

// begin is a series at its first occurrence.
func begin(now time.Time) state {
	return state{phase: settling, count: 1, eventTime: now, last: now}
}

// revive continues a series that was evicted, from what is remembered of it.
func revive(prev state, now time.Time) state {
	prev.phase, prev.closing, prev.killed = single, notClosing, false
	if prev.stored > 1 {
		prev.phase = ongoing
	}
	prev.recreate, prev.retried, prev.dirty = false, false, false
	prev.count, prev.last = prev.stored+1, now
	return prev
}

// step is the whole life of a series: a pure function, without clock, lock or call.
func step(s state, in input, p *policy) (state, effects) {
	var e effects
	switch in.kind {
	case inOccurred:
		var lost bool
		if e.reopen, lost, e.owes = s.occur(in.now, p); lost {
			e.lost = 1
		}
	case inTick:
		s, e = ticked(s, in, p)
	case inClose:
		if s.closing == notClosing {
			s.closing = in.closing
		}
		s, e = s.settle(e)
	case inSend:
		s, e = send(s, in, p)
	case inDone:
		s, e = done(s, in, p)
	case inMissing:
		s.recreate, e.owes = s.phase != settling, true
	case inExists:
		s, e = exists(s)
	case inRefused:
		e.lost = s.count - s.stored
		s.stored, s.phase, s.heartbeat = s.count, rejected, in.now.Add(p.threshold)
		s, e = s.settle(e)
	case inFailed:
		s.retried = s.retried || in.op.kind == opCreate
		e.owes = true
	}
	e.wake = s.deadline(p)
	return s, e
}

// occur is the input inOccurred in place: the one that comes a million times a second, so it copies
// nothing.
func (s *state) occur(now time.Time, p *policy) (reopen, lost, owes bool) {
	switch {
	case s.phase == rejected:
		lost = now.Before(s.heartbeat)
		return !lost, lost, false
	case s.phase == closed || s.closing == finished || s.closing == suspended || s.idle(now) >= p.threshold:
		return true, false, false
	}
	s.closing = notClosing // evicted, but not flushed yet: go on
	s.killed = false
	s.count++
	s.last = now
	return false, false, s.phase != ongoing || s.dirty || s.earlyDue(p)
}

// idle is for how long the series has been silent as far as this process knows.
func (s *state) idle(now time.Time) time.Duration {
	if s.adopted.After(s.last) {
		return now.Sub(s.adopted)
	}
	return now.Sub(s.last)
}

func ticked(s state, in input, p *policy) (state, effects) {
	var e effects
	switch {
	case s.phase == rejected:
		if !in.now.Before(s.heartbeat) {
			s.phase, e.forget = closed, true
		}
	case s.phase == settling || s.closing != notClosing:
	case s.idle(in.now) >= p.threshold:
		s.closing = finished
		return s.settle(e)
	case s.phase == ongoing && !in.now.Before(s.heartbeat):
		s.dirty, e.owes = true, true
	}
	return s, e
}

// settle says what a series that has just changed owes.
func (s state) settle(e effects) (state, effects) {
	ends := s.closing != notClosing
	switch s.phase {
	case settling:
		e.owes = true
	case single:
		e.owes = s.count > s.stored || s.recreate
		e.forget = ends && !e.owes
	case ongoing:
		e.owes = ends || s.dirty || s.recreate
	default:
		e.forget = ends
	}
	if e.forget {
		s.phase = closed
	}
	return s, e
}

// send chooses the call.
func send(s state, in input, p *policy) (state, effects) {
	var e effects
	if s.closing == notClosing && s.idle(in.now) >= p.threshold && s.phase != rejected {
		s.closing = finished
	}
	whole := op{kind: opPatch, count: s.count, series: s.count > 1, loose: s.loose, last: s.last, final: s.closing != notClosing}
	if whole.series {
		whole.state = s.stateName()
	}
	switch {
	case s.phase == settling:
		e.op = whole
		e.op.kind = opCreate
		if !s.retried && s.count > 1 { // as the proposal has it: the first event is written without a series
			e.op.count, e.op.series, e.op.state, e.op.final = 1, false, "", false
		}
	case s.recreate:
		e.op = whole
		e.op.kind = opCreate
	case s.phase == single && s.count == s.stored, s.phase == rejected, s.phase == closed:
		s, e = s.settle(e)
	case s.phase == ongoing && s.closing == notClosing && !s.dirty && !s.earlyDue(p):
	default:
		e.op = whole
	}
	return s, e
}

// done books a call that succeeded.
func done(s state, in input, p *policy) (state, effects) {
	e := effects{acked: max(in.op.count-s.stored, 0)}
	s.stored = max(in.op.count, s.stored)
	s.phase = single
	if in.op.series {
		s.phase = ongoing
	}
	s.recreate, s.retried, s.dirty = false, false, false
	s = s.written(in.now, in.rand, p)
	if in.op.final && s.closing != notClosing && s.count == s.stored { // else it took occurrences meanwhile
		s.phase, e.forget = closed, true
		return s, e
	}
	s, e = s.settle(e)
	e.owes = e.owes || s.earlyDue(p)
	return s, e
}

// exists books a create that met the object which an earlier try had made, with a count that is not
// known: all that is certain is the first occurrence. A patch says the rest.
func exists(s state) (state, effects) {
	var e effects
	s.recreate = false
	if s.phase == settling {
		s.phase = single
		s.stored, e.acked = 1, 1
		if s.retried && s.count > 1 {
			s.phase = ongoing
		}
	}
	s.dirty = s.phase == ongoing
	return s.settle(e)
}

// written sets what follows from any successful write: the next heartbeat and the next early count.
func (s state) written(now time.Time, rand float64, p *policy) state {
	s.heartbeat = now.Add(time.Duration(float64(p.heartbeat) * (0.9 + 0.2*rand)))
	for s.early < len(p.early) && p.early[s.early] <= s.stored {
		s.early++
	}
	return s
}

func (s *state) earlyDue(p *policy) bool {
	return s.early < len(p.early) && s.count >= p.early[s.early]
}

func (s *state) stateName() string {
	switch {
	case s.closing == notClosing:
		return stateOngoing
	case s.closing == finished && !s.killed:
		return stateFinished
	}
	return stateUnknown
}

// deadline is when step wants an inTick, zero for never.
func (s *state) deadline(p *policy) time.Time {
	switch {
	case s.phase == rejected:
		return s.heartbeat
	case s.phase == settling || s.phase == closed || s.closing != notClosing:
		return time.Time{}
	}
	end := s.last.Add(p.threshold)
	if s.adopted.After(s.last) {
		end = s.adopted.Add(p.threshold)
	}
	if s.phase == ongoing && !s.dirty && s.heartbeat.Before(end) {
		return s.heartbeat
	}
	return end
}

// found is what a stored object of an earlier process says about its series.
type found struct {
	series          bool
	count           int64
	eventTime, last time.Time
	state           string
	loose           bool
}

// adopt is the state of a series that continues the stored one, together with the occurrences of
// the given state, which has not been sent yet (its zero value if there are none). It reports
// whether the stored series may be continued at all; where it may not, an Ongoing one was abandoned
// and must be said to be Unknown.
func (p *policy) adopt(s state, f found, now time.Time, rand float64) (_ state, continues, abandoned bool) {
	at := now
	if s.count > 0 {
		at = s.eventTime
	}
	limit := p.threshold
	killed := f.series && f.state != stateUnknown // Ongoing, or of a recorder that keeps no state
	if killed {
		limit = p.continued()
	}
	age := at.Round(0).Sub(f.last)
	if f.state == stateFinished || age.Abs() >= limit {
		return s, false, f.state == stateOngoing
	}
	next := s
	next.phase, next.stored, next.eventTime, next.adopted = single, f.count, f.eventTime, now
	next.count += f.count
	next.loose = f.loose || killed
	if next.killed = killed && s.count == 0; s.count == 0 {
		next.last = now.Add(-max(age, 0))
	}
	if f.series { // the next occurrence is told, and that the series goes on
		next.phase, next.dirty = ongoing, true
	}
	next = next.written(now, rand, p)
	return next, true, false
}
