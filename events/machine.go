// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import "time"

// phase is how far one series has come at the API server.
type phase uint8

const (
	settling phase = iota // nothing of it is known to be stored; its name is being settled
	single                // stored without a series field
	ongoing               // stored with one
	rejected              // the server will not have it; a tombstone, so that a hot loop costs no calls
	closed                // nothing more to do; to be forgotten
)

// closing is why a series takes no further occurrences.
type closing uint8

const (
	notClosing closing = iota
	finished           // the threshold passed without an occurrence
	evicted            // it was pushed out of the table
	suspended          // the recorder shuts down
)

// The states of the redesign proposal, kept as an annotation because the v1 API has no field for them.
const (
	stateOngoing  = "Ongoing"
	stateFinished = "Finished"
	stateUnknown  = "Unknown" // nobody counts any more: evicted or shut down
)

// inputKind says what happened to a series.
type inputKind uint8

const (
	inOccurred inputKind = iota // an isomorphic event was emitted
	inTick                      // a deadline may have come
	inClose                     // evict or suspend it
	inSend                      // a writer is free: which call?
	inDone                      // the call succeeded
	inMissing                   // the call met 404: the object is not there
	inExists                    // the create met AlreadyExists
	inRefused                   // the call was refused for good
	inFailed                    // the call failed and may or may not have been carried out
)

type input struct {
	kind    inputKind
	now     time.Time
	rand    float64  // in [0,1), for jitter
	op      op       // inDone … inFailed: the call
	seen    snapshot // inDone of an opRead
	closing closing  // inClose
}

// effects is what the caller of step must do.
type effects struct {
	op      op        // inSend: the call to make, opNone if there is nothing to do
	owes    bool      // the series owes the server a call
	reopen  bool      // the occurrence was not taken: it begins another series
	forget  bool      // drop the series from memory
	adopted bool      // a stored series of an earlier process is being continued
	acked   int64     // occurrences that the server has now been told of
	lost    int64     // occurrences that it never will
	wake    time.Time // the next deadline, zero for none
}

// state is a series without its identity. It is a value: step returns the next one.
type state struct {
	phase    phase
	task     task
	closing  closing
	recreate bool  // the stored object has gone: write it whole
	retried  bool  // a call failed before: a create may already carry the series
	dirty    bool  // one more write is wanted whatever the count
	hops     uint8 // names tried and calls wasted on finding one
	epoch    uint32
	early    int   // index of the next early count
	count    int64 // occurrences, those of adopted predecessors included
	stored   int64 // of these, told to the server
	// eventTime is that of the object; first is the first occurrence seen by this process.
	eventTime, first, last time.Time
	heartbeat              time.Time // when the next one is due; for rejected: when the tombstone goes
	pointAt                time.Time // when the pointer on epoch 0 must be refreshed
}

// policy is the part of Options that step needs.
type policy struct {
	threshold time.Duration
	heartbeat time.Duration
	early     []int64 // ascending
}

// pointerEvery is how often the pointer to a later epoch is refreshed: well within the life of an Event, which is an hour by default.
func (p *policy) pointerEvery() time.Duration { return p.heartbeat * 5 / 6 }

const (
	maxHops    = 16
	saltEpochs = 1 << 31 // epochs from here on are random: the last resort when every name is taken
)

// begin is a series at its first occurrence.
func begin(now time.Time) state {
	return state{phase: settling, task: taskCreate, count: 1, eventTime: now, first: now, last: now}
}

// after is a series that follows another one of the same key, whose name is known.
func (p *policy) after(prev state, now time.Time) state {
	s := begin(now)
	if prev.phase == settling || prev.phase == rejected || prev.epoch >= saltEpochs-1 {
		return s // nothing is known of what is stored; the walk from epoch 0 finds it
	}
	s.epoch, s.pointAt = prev.epoch+1, prev.pointAt
	if !now.Before(s.pointAt) {
		s.task = taskPoint
	}
	return s
}

// revive continues a series that was evicted, from what is remembered of it.
func (p *policy) revive(prev state, now time.Time) state {
	s := begin(now)
	s.epoch, s.pointAt, s.eventTime, s.heartbeat = prev.epoch, prev.pointAt, prev.eventTime, prev.heartbeat
	s.stored, s.count, s.early = prev.stored, prev.stored+1, prev.early
	s.phase = single
	if s.stored > 1 {
		s.phase = ongoing
	}
	return s
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
		s = missing(s, in, p)
		e.owes = true
	case inExists:
		s = exists(s, in)
		e.owes = true
	case inRefused:
		s, e = refused(s, in, p)
	case inFailed:
		s.retried = true
		e.owes = true
	}
	e.wake = s.deadline(p)
	return s, e
}

// occur is the input inOccurred in place: the one that comes a million times a second, so it copies nothing.
func (s *state) occur(now time.Time, p *policy) (reopen, lost, owes bool) {
	switch {
	case s.phase == rejected:
		lost = now.Before(s.heartbeat)
		return !lost, lost, false
	case s.phase == closed || s.closing == finished || s.closing == suspended || now.Sub(s.last) >= p.threshold:
		return true, false, false
	}
	s.closing = notClosing // evicted, but not flushed yet: go on
	s.count++
	s.last = now
	return false, false, s.phase != ongoing || s.earlyDue(p)
}

func ticked(s state, in input, p *policy) (state, effects) {
	var e effects
	switch {
	case s.phase == rejected:
		if !in.now.Before(s.heartbeat) {
			s.phase, e.forget = closed, true
		}
		return s, e
	case s.phase == settling || s.closing != notClosing:
		return s, e
	case in.now.Sub(s.last) >= p.threshold:
		s.closing = finished
		return s.settle(e)
	case s.phase == ongoing && !in.now.Before(s.heartbeat):
		s.dirty, e.owes = true, true
	}
	return s, e
}

// settle says what a series that has just changed owes.
func (s state) settle(e effects) (state, effects) {
	switch s.phase {
	case settling:
		e.owes = true
	case rejected, closed:
		if s.closing != notClosing {
			s.phase, e.forget = closed, true
		}
	case single:
		switch {
		case s.count > s.stored || s.recreate:
			e.owes = true
		case s.closing != notClosing:
			s.phase, e.forget = closed, true
		}
	case ongoing:
		e.owes = s.closing != notClosing || s.dirty || s.recreate
	}
	return s, e
}

func send(s state, in input, p *policy) (state, effects) {
	var e effects
	if s.closing == notClosing && in.now.Sub(s.last) >= p.threshold && s.phase != rejected {
		s.closing = finished
	}
	whole := op{epoch: s.epoch, count: s.count, series: s.count > 1, last: s.last, final: s.closing != notClosing}
	if whole.series {
		whole.state = s.stateName()
	}
	switch {
	case s.phase == settling && s.task == taskRead:
		e.op = op{kind: opRead, epoch: s.epoch}
	case s.phase == settling && s.task == taskPoint:
		e.op = op{kind: opPoint, latest: s.epoch, last: in.now}
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
	case s.phase == ongoing && s.closing == notClosing && s.epoch > 0 && s.epoch < saltEpochs && !in.now.Before(s.pointAt):
		e.op = op{kind: opPoint, latest: s.epoch, last: in.now}
	default:
		e.op = whole
		e.op.kind = opPatch
	}
	return s, e
}

// written sets what follows from any successful write: the next heartbeat and the next early count.
func (s state) written(in input, p *policy) state {
	s.heartbeat = in.now.Add(time.Duration(float64(p.heartbeat) * (0.9 + 0.2*in.rand)))
	for s.early < len(p.early) && p.early[s.early] <= s.stored {
		s.early++
	}
	return s
}

func (s *state) earlyDue(p *policy) bool {
	return s.early < len(p.early) && s.count >= p.early[s.early]
}

func (s *state) stateName() string {
	switch s.closing {
	case notClosing:
		return stateOngoing
	case finished:
		return stateFinished
	default:
		return stateUnknown
	}
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
	if s.phase == ongoing && !s.dirty && s.heartbeat.Before(end) {
		return s.heartbeat
	}
	return end
}
