// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import "time"

// phase is the knowledge about a series' object.
type phase uint8

const (
	phaseAbsent  phase = iota // no object exists: create the object
	phaseUnread               // an object of unknown content may exist: read the object
	phaseStored               // the object holds state.stored occurrences: patch the object
	phaseResting              // refused before the first write: no call for the threshold
	phaseDone                 // no call is left to make
)

// ending is the reason why a series takes no further occurrences.
type ending uint8

const (
	going     ending = iota
	finished         // the threshold passed without an occurrence
	evicted          // pushed out of the table, or left by a killed process
	suspended        // the recorder shuts down
)

// The states of the redesign proposal, kept as an annotation because the v1 API has no field.
const (
	stateOngoing  = "Ongoing"
	stateFinished = "Finished"
	stateUnknown  = "Unknown" // nobody counts any more: evicted, shut down, killed
)

// callKind is the kind of an API call, by its name in metrics.
type callKind string

const (
	callNone   callKind = ""
	callCreate callKind = "create"
	callPatch  callKind = "patch"
	callRead   callKind = "read" // an empty patch: a node may patch and may not get an Event
)

// call is a snapshot of a series for a write: later occurrences leave the call unchanged.
type call struct {
	kind    callKind
	count   int64 // occurrences in the object once the call has succeeded
	last    time.Time
	state   string // the state annotation, "" for a singleton
	loose   bool   // the count is a lower bound
	version string // a patch applies to this version of the object only
	final   bool   // the last call of the series
}

// Early writes come before the first heartbeat. Without early writes, kubectl shows a loop for half
// an hour as of its second occurrence, as if the loop had stopped. Occurrences make them, not a
// timer: the end of a loop is written anyway.
const (
	earlyWrites = 4               // at doubling intervals
	earlyFirst  = 2 * time.Minute // the first interval, after the second occurrence's write
	slowLoop    = 10 * time.Second
)

// state is a series without its identity: a value without clock, lock or call.
//
// The invariant: count-stored is the number of this process's occurrences not yet acknowledged by
// an answer. A read of another count moves both.
type state struct {
	phase   phase
	end     ending
	early   uint8     // early writes made
	loose   bool      // a killed process counted part of the occurrences
	count   int64     // occurrences, those of other processes included
	stored  int64     // occurrences in the object, as far as is known
	sent    int64     // the count of a call without an answer, 0 for none
	sentAt  time.Time // the last occurrence named by the call
	version string    // resourceVersion of the object, "" if unknown
	begun   time.Time // eventTime of the object
	last    time.Time // last occurrence
	adopted time.Time // when the series was refused, or an earlier process's series was taken over to end
	due     time.Time // an occurrence from then on is written
}

func begin(now time.Time) state { return state{count: 1, begun: now, last: now} }

// unwritten reports whether no call may have stored anything.
func (s *state) unwritten() bool { return s.phase == phaseAbsent && s.stored+s.sent == 0 }

// occur counts an occurrence. It returns false if the occurrence begins another series. Only occur
// is called a million times a second.
func (s *state) occur(now time.Time, o *Options) bool {
	if s.phase == phaseDone || s.end == finished || s.end == suspended || s.silent(now, o) {
		return false
	}
	s.end = going // evicted, but not flushed yet: the series goes on
	s.count++
	s.last = now
	return true
}

func (s *state) quiet() time.Time {
	if s.adopted.After(s.last) {
		return s.adopted
	}
	return s.last
}

func (s *state) silent(now time.Time, o *Options) bool { return now.Sub(s.quiet()) >= o.FinishAfter }

// tick ends a stored series after silence for the threshold.
func (s *state) tick(now time.Time, o *Options) {
	if s.end == going && s.silent(now, o) {
		s.end = finished
	}
}

// owes reports whether the series has a call to make.
func (s *state) owes(now time.Time) bool {
	switch {
	case s.phase == phaseAbsent || s.phase == phaseUnread:
		return true
	case s.phase != phaseStored:
		return false
	case s.end != going:
		return s.count > 1
	}
	return s.count > max(s.stored, 1) && !now.Before(s.due)
}

// over reports whether the series can be forgotten.
func (s *state) over(now time.Time) bool {
	return s.phase == phaseDone || s.end != going && !s.owes(now)
}

// next returns the call to make.
func (s *state) next(now time.Time, o *Options) call {
	s.tick(now, o)
	c := call{kind: callPatch, count: s.count, last: s.last, loose: s.loose, version: s.version, final: s.end != going}
	switch {
	case !s.owes(now):
		return call{}
	case s.phase == phaseUnread:
		return call{kind: callRead, version: s.version}
	case s.phase == phaseAbsent:
		c.kind, c.version = callCreate, ""
	}
	switch {
	case c.count == 1:
	case s.end == going:
		c.state = stateOngoing
	case s.end == finished && !(s.loose && s.adopted.After(s.last)):
		c.state = stateFinished
	default:
		c.state = stateUnknown
	}
	return c
}

// done books a successful create or patch and returns the acknowledged occurrences. rand, in [0,1),
// is the heartbeat's jitter.
func (s *state) done(c call, version string, now time.Time, rand float64, o *Options) (acked int64) {
	if acked = max(c.count-s.stored, 0); s.stored > 1 && s.early < earlyWrites {
		s.early++
	}
	s.phase, s.sent, s.version, s.due = phaseStored, 0, version, now
	s.stored = max(c.count, s.stored)
	switch {
	case c.final && s.end != going && s.count == s.stored: // else occurrences came meanwhile
		s.phase = phaseDone
	case s.stored > 1 && !c.final:
		after := time.Duration(float64(o.Heartbeat) * (0.9 + 0.2*rand))
		if s.early < earlyWrites {
			after = min(after, earlyFirst<<s.early)
		}
		s.due = now.Add(after)
	}
	return acked
}

func (s *state) missing() { s.phase, s.version = phaseAbsent, "" }

// mistrust lets a read come before the next patch: another process writes such objects too.
func (s *state) mistrust(now time.Time) {
	if s.phase == phaseStored && s.owes(now) {
		s.phase = phaseUnread
	}
}

// doubtful books a call of unknown effect.
func (s *state) doubtful(c call) {
	if s.phase = phaseUnread; c.kind != callRead {
		s.sent, s.sentAt = c.count, c.last
	}
}

// refused books a permanent refusal and returns the lost occurrences. A stored series goes on
// counting until the next heartbeat or the end.
func (s *state) refused(now time.Time, o *Options) (lost int64) {
	switch {
	case s.stored > 0 && s.end == going:
		s.phase, s.due, s.early = phaseStored, now.Add(o.Heartbeat), earlyWrites
		return 0
	case s.stored > 0:
		s.phase = phaseDone
	default:
		s.phase, s.adopted = phaseResting, now
	}
	lost = s.count - s.stored
	s.stored = s.count
	return lost
}

// found is the content of a stored object about its series.
type found struct {
	count       int64 // 1 for an object without a series
	begun, last time.Time
	state       string
	loose       bool
	version     string
}

// continues reports whether this process may continue an earlier process's stored series with an
// occurrence at the given time; killed reports whether the earlier process did not end in order. A
// killed process may have seen occurrences until just before its next heartbeat.
func (f *found) continues(at time.Time, o *Options) (goOn, killed bool) {
	limit := o.FinishAfter
	if killed = f.count > 1 && f.state != stateUnknown && f.state != stateFinished; killed {
		limit += o.Heartbeat * 11 / 10
	}
	return f.state != stateFinished && at.Round(0).Sub(f.last).Abs() < limit, killed
}

// adopt adds this process's occurrences to the series of an earlier process.
func (s *state) adopt(f found, killed bool, now time.Time) {
	s.phase, s.loose, s.begun, s.due, s.version = phaseStored, f.loose || killed, f.begun, now, f.version
	s.stored = f.count
	s.count += f.count
}

// closed returns the state of a series of an earlier process that ends: Finished if this process
// has waited for occurrences long enough, Unknown if the earlier process was killed.
func (f *found) closed(goOn, killed bool, now time.Time) state {
	s := state{phase: phaseDone, end: finished, count: f.count, stored: f.count, begun: f.begun, last: f.last, loose: f.loose || killed, version: f.version, adopted: now}
	if killed || goOn && !s.loose {
		s.phase = phaseStored
	}
	return s
}

// merge books a read of an object written before by this process and returns the acknowledged
// occurrences. A count not written by this process comes from another process with the same
// instance: the occurrences of both count.
func (s *state) merge(f found, now time.Time) (acked int64) {
	base := s.stored
	if s.sent > base && (f.count > s.sent || f.count == s.sent && (f.count == 1 || f.last.UnixMicro() == s.sentAt.UnixMicro())) {
		s.loose = s.loose || f.count > s.sent // not sure: another process may have come first
		base = s.sent                         // the call without an answer was carried out
	}
	acked = base - s.stored
	s.count += max(f.count-base, 0)
	s.stored, s.version, s.phase, s.due = max(f.count, base), f.version, phaseStored, now
	if f.last.After(s.last) {
		s.last = f.last
	}
	if s.end != going && s.count == s.stored && f.count > base && f.state == stateOngoing && !s.loose {
		s.phase = phaseDone // the other process continues the series
	}
	return acked
}

// revived returns the state of an evicted series that continues with a new occurrence.
func (s state) revived(now time.Time) state {
	s.phase, s.end, s.sent = phaseStored, going, 0
	s.count, s.last = s.stored+1, now
	s.due = s.due.Add(earlyFirst) // the object says Unknown
	return s
}
