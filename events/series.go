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
	version string // a patch applies to this version of the object only, "" for any
	final   bool   // the last call of the series
	mark    bool   // a patch of the annotations only: the counts stay as stored
}

// The pace of the writes of a loop. A series whose object has tokens is written each firstPause
// in its first minute, then at doubling pauses up to steadyPause: kubectl shows when a loop was
// last seen, to five minutes. Without tokens, the pauses double from slowPause to the heartbeat.
const (
	firstWrites = 6 // at firstPause
	firstPause  = 10 * time.Second
	secondPause = time.Minute // doubles with each write
	steadyPause = 285 * time.Second
	slowWrites  = 4 // before the heartbeat
	slowPause   = 2 * time.Minute
	slowLoop    = 10 * time.Second // between two occurrences: each is written, while there are tokens
)

// state is a series without its identity: a value without clock, lock or call. Only the become
// functions change phase and end.
//
// The invariant: count-stored is the number of this process's occurrences not yet acknowledged by
// an answer. A read of another count moves both.
type state struct {
	phase phase
	end   ending
	// writes counts the writes since the series' second occurrence, up to 255: the pace.
	writes uint8
	// denied: the server refused the last write for good.
	denied bool
	// loose: a killed process counted part of the occurrences.
	loose bool
	// mark: the calls of this series set its state only. The series is of an earlier process, and
	// its counts stay as that process stored them.
	mark bool
	// count is the number of occurrences, those of other processes included.
	count int64
	// stored is the number of occurrences in the object, as far as is known.
	stored int64
	// sent is the count of a call without an answer that may have been carried out, or may be yet; 0
	// for none.
	sent int64
	// sentAt is the last occurrence named by that call.
	sentAt time.Time
	// anew: that call was a create. The server may carry it out whenever the object is gone.
	anew bool
	// version is the resourceVersion of the object, "" if unknown.
	version string
	// begun is the eventTime of the object.
	begun time.Time
	// last is the time of the last occurrence.
	last time.Time
	// quietFrom is when the series was refused, or was taken over in order to end. The threshold
	// counts from then if that is later than last.
	quietFrom time.Time
	// due is when the count is written if it has grown; the zero time is at once.
	due time.Time
}

func begin(now time.Time) state { return state{count: 1, begun: now, last: now} }

func (s *state) becomeAbsent() {
	s.phase = phaseAbsent
	s.version = ""
}

func (s *state) becomeUnread() { s.phase = phaseUnread }

// becomeStored books the object's version; the count is written from due on.
func (s *state) becomeStored(version string, due time.Time) {
	s.phase = phaseStored
	s.version = version
	s.due = due
}

func (s *state) becomeResting(now time.Time) {
	s.phase = phaseResting
	s.quietFrom = now
}

func (s *state) becomeDone() { s.phase = phaseDone }

func (s *state) becomeGoing() { s.end = going }

func (s *state) becomeFinished() { s.end = finished }

func (s *state) becomeEvicted() { s.end = evicted }

func (s *state) becomeSuspended() { s.end = suspended }

// untouched reports whether no call of this process may have stored anything.
func (s *state) untouched() bool { return s.stored == 0 && s.sent == 0 }

// unwritten reports whether there is no object yet, and no doubt about that.
func (s *state) unwritten() bool { return s.phase == phaseAbsent && s.untouched() }

// certain reports whether no call without an answer may have changed the object.
func (s *state) certain() bool {
	return s.sent == 0 && (s.phase == phaseAbsent || s.phase == phaseStored)
}

// continuing reports whether the series is one to be continued by a restart.
func (s *state) continuing() bool { return s.end != finished && s.phase != phaseResting }

// occur counts an occurrence. It returns false if the occurrence begins another series. Only occur
// is called a million times a second.
func (s *state) occur(now time.Time, o *Options) bool {
	if s.phase == phaseDone || s.end == finished || s.end == suspended || s.silent(now, o) {
		return false
	}
	s.becomeGoing() // evicted, but not flushed yet: the series goes on
	s.count++
	s.last = now
	return true
}

func (s *state) quiet() time.Time {
	if s.quietFrom.After(s.last) {
		return s.quietFrom
	}
	return s.last
}

func (s *state) silent(now time.Time, o *Options) bool { return now.Sub(s.quiet()) >= o.FinishAfter }

// tick ends a stored series after silence for the threshold.
func (s *state) tick(now time.Time, o *Options) {
	if s.end == going && s.silent(now, o) {
		s.becomeFinished()
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

// next returns the call to make. A call without an answer is repeated as it was: the server may
// carry out the first one even now.
func (s *state) next(now time.Time, o *Options) call {
	s.tick(now, o)
	if !s.owes(now) {
		return call{}
	}
	c := call{
		kind:    callPatch,
		count:   s.count,
		last:    s.last,
		loose:   s.loose,
		version: s.version,
		final:   s.end != going,
		mark:    s.mark,
	}
	switch s.phase {
	case phaseUnread:
		return call{kind: callRead, version: s.version}
	case phaseAbsent:
		c.kind = callCreate
		c.version = ""
	}
	if s.sent > s.stored { // else nobody could tell which of the two the server has carried out
		c.count = s.sent
		c.last = s.sentAt
		c.final = c.final && s.sent == s.count
	}
	switch {
	case c.count == 1:
	case !c.final:
		c.state = stateOngoing
	case s.end == finished && !(s.loose && s.quietFrom.After(s.last)):
		c.state = stateFinished
	default:
		c.state = stateUnknown
	}
	return c
}

// written is a successful create or patch.
type written struct {
	call
	version string
	now     time.Time
	// jitter, in [0,1), spreads the heartbeats.
	jitter float64
	// tokens: the object has tokens for another write of a loop.
	tokens bool
}

// done books a successful create or patch and returns the acknowledged occurrences.
func (s *state) done(w written, o *Options) (acked int64) {
	acked = max(w.count-s.stored, 0)
	if s.stored > 1 && s.writes < 255 {
		s.writes++
	}
	repeated := s.sent > s.stored
	s.denied = false
	s.sent = 0
	s.stored = max(w.count, s.stored)
	due := w.now
	if s.stored > 1 && !w.final && !repeated {
		due = w.now.Add(s.pause(w.jitter, w.tokens, o))
	}
	s.becomeStored(w.version, due)
	if w.final && s.end != going && s.count == s.stored { // else occurrences came meanwhile
		s.becomeDone()
	}
	return acked
}

// pause returns the least time from a write of a series to the next.
func (s *state) pause(jitter float64, tokens bool, o *Options) time.Duration {
	spread := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * (0.9 + 0.2*jitter))
	}
	heartbeat := spread(o.Heartbeat)
	n := int(s.writes)
	switch {
	case !tokens && n < slowWrites:
		return min(slowPause<<n, heartbeat)
	case !tokens:
		return heartbeat
	case n < firstWrites:
		return min(firstPause, heartbeat)
	}
	steady := time.Duration(float64(steadyPause) * (0.95 + 0.05*jitter))
	return min(secondPause<<min(n-firstWrites, 8), steady, heartbeat)
}

// hurried reports whether the next write is made by a timer: in a series' first minute, also a loop
// that stops shows its count.
func (s *state) hurried() bool {
	return s.phase == phaseStored && s.end == going && s.stored > 1 && s.writes < firstWrites
}

// mistrust lets a read come before the next patch: another process writes such objects too.
func (s *state) mistrust(now time.Time) {
	if s.phase == phaseStored && s.owes(now) {
		s.becomeUnread()
	}
}

// doubtful books a call of unknown effect.
func (s *state) doubtful(c call) {
	s.becomeUnread()
	if c.kind != callRead {
		s.sent = c.count
		s.sentAt = c.last
		s.anew = c.kind == callCreate
	}
}

// refused books a permanent refusal and returns the lost occurrences. A stored series goes on
// counting until the next heartbeat or the end.
func (s *state) refused(now time.Time, o *Options) (lost int64) {
	s.denied = true
	switch {
	case s.stored > 0 && s.end == going:
		s.writes = 255
		s.becomeStored(s.version, now.Add(o.Heartbeat))
		return 0
	case s.stored > 0:
		s.becomeDone()
	default:
		s.becomeResting(now)
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
	killed = f.count > 1 && f.state != stateUnknown && f.state != stateFinished
	if killed {
		limit += o.Heartbeat * 11 / 10
	}
	return f.state != stateFinished && at.Round(0).Sub(f.last).Abs() < limit, killed
}

// adopt adds this process's occurrences to the series of an earlier process.
func (s *state) adopt(f found, killed bool, now time.Time) {
	s.loose = f.loose || killed
	s.begun = f.begun
	s.stored = f.count
	s.count += f.count
	s.becomeStored(f.version, now)
}

// closed returns the state of a series of an earlier process that ends: Finished if this process
// has waited for occurrences long enough, Unknown if the earlier process was killed.
func (f *found) closed(goOn, killed bool, now time.Time) state {
	s := state{
		count:     f.count,
		stored:    f.count,
		begun:     f.begun,
		last:      f.last,
		loose:     f.loose || killed,
		quietFrom: now,
	}
	s.becomeFinished()
	s.becomeStored(f.version, time.Time{})
	if !killed && !(goOn && !s.loose) {
		s.becomeDone() // the object says all there is to say
	}
	return s
}

// merge books a read of an object written before by this process and returns the acknowledged
// occurrences. A count not written by this process comes from another process with the same
// instance: the occurrences of both count.
func (s *state) merge(f found, now time.Time) (acked int64) {
	base := s.stored
	if s.carriedOut(f) {
		s.loose = s.loose || f.count > s.sent // not sure: another process may have come first
		base = s.sent
	}
	if f.version != s.version && !s.anew {
		s.sent = 0 // it was carried out, or never is
	}
	acked = base - s.stored
	s.count += max(f.count-base, 0)
	s.stored = max(f.count, base)
	s.becomeStored(f.version, now)
	switch {
	case f.last.After(now): // the other process's clock is ahead
		s.last = now
	case f.last.After(s.last):
		s.last = now.Add(f.last.Sub(now)) // by a clock that nobody sets
	}
	elsewhere := f.count > base && f.state == stateOngoing && !s.loose
	if s.end != going && s.count == s.stored && elsewhere {
		s.becomeDone() // the other process continues the series
	}
	return acked
}

// carriedOut reports whether the call without an answer was carried out.
func (s *state) carriedOut(f found) bool {
	switch {
	case s.sent <= s.stored:
		return false
	case f.count > s.sent:
		return true
	}
	same := f.count == 1 || f.last.UnixMicro() == s.sentAt.UnixMicro()
	return f.count == s.sent && same
}

// revived returns the state of an evicted series that continues with a new occurrence.
func (s state) revived(now time.Time) state {
	s.becomeGoing()
	s.becomeStored(s.version, s.due.Add(slowPause)) // the object says Unknown
	s.sent = 0
	s.count = s.stored + 1
	s.last = now
	return s
}
