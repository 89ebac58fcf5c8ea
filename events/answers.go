// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math"
	"time"
)

// What step makes of the answers to its calls.

func done(s state, in input, p *policy) (state, effects) {
	var e effects
	switch in.op.kind {
	case opRead:
		s, e = found(s, in, p)
	case opPoint:
		s.pointAt = in.now.Add(p.pointerEvery())
		if s.phase == settling {
			s.task = taskCreate
		}
	case opCreate, opPatch:
		e.acked = max(in.op.count-s.stored, 0)
		s.stored = max(in.op.count, s.stored)
		s.phase = single
		if in.op.series {
			s.phase = ongoing
		}
		s.recreate, s.retried, s.dirty, s.hops = false, false, false, 0
		s = s.written(in, p)
		if in.op.final && s.closing != notClosing {
			s.phase, e.forget = closed, true
			return s, e
		}
	}
	s, e2 := s.settle(effects{})
	e.owes = e2.owes || s.earlyDue(p)
	e.forget = e2.forget
	return s, e
}

// found decides what to do about the object that holds the wanted name.
func found(s state, in input, p *policy) (state, effects) {
	var e effects
	seen := in.seen
	switch {
	case s.phase != settling: // it expired and came back: patch it again
		s.recreate = false
	case seen.ours && seen.eventTime.UnixMicro() == s.first.UnixMicro():
		// Our own create, whose answer was lost.
		s.stored = min(max(seen.count, 1), s.count)
		e.acked = s.stored
		s.phase = single
		if seen.series {
			s.phase = ongoing
		}
		s = s.written(in, p)
	case seen.ours && in.op.epoch == 0 && seen.latest > 0 && s.hops < maxHops:
		s.epoch, s.task = seen.latest, taskRead
		s.hops++
	case seen.ours && seen.state != stateFinished && s.first.Sub(seen.last).Abs() < p.threshold:
		base := max(seen.count, 1)
		s.count += base
		s.stored = base
		s.eventTime = seen.eventTime
		s.phase = single
		if seen.series {
			s.phase = ongoing
			s.dirty = seen.state != stateOngoing
		}
		s = s.written(in, p)
		e.adopted = true
	default:
		s = s.nextName(in)
		if seen.ours && s.epoch < saltEpochs {
			s.task = taskPoint
		}
	}
	return s, e
}

// nextName moves on to a name that is not known to be taken.
func (s state) nextName(in input) state {
	s.hops++
	s.task = taskCreate
	if s.hops >= maxHops || s.epoch >= saltEpochs-1 {
		s.epoch = saltEpochs + uint32(in.rand*(math.MaxUint32-saltEpochs))
		s.hops = 0
		return s
	}
	s.epoch++
	return s
}

func missing(s state, in input, p *policy) state {
	switch in.op.kind {
	case opRead: // gone between the two calls
		s.task = taskCreate
	case opPoint:
		if s.phase == settling { // epoch 0 has expired: the name is free again
			s.epoch, s.task, s.pointAt = 0, taskCreate, time.Time{}
		} else {
			s.pointAt = in.now.Add(p.pointerEvery())
		}
	case opPatch:
		s.recreate = true
	}
	return s
}

func exists(s state, in input) state {
	if s.phase == settling {
		s.task = taskRead
		return s
	}
	s.recreate = false
	s.dirty = true
	if s.hops++; s.hops >= maxHops { // it comes and goes: leave that name alone
		s = s.nextName(in)
		s.recreate = true
	}
	return s
}

func refused(s state, in input, p *policy) (state, effects) {
	var e effects
	switch {
	case in.op.kind == opRead && s.phase == settling: // may not be read: another name, and no continuity
		s.hops = maxHops
		s = s.nextName(in)
		e.owes = true
		return s, e
	case in.op.kind == opPoint:
		s.pointAt = in.now.Add(p.pointerEvery())
		if s.phase == settling {
			s.task = taskCreate
		}
		e.owes = true
		return s, e
	}
	e.lost = s.count - s.stored
	s.stored = s.count
	s.phase = rejected
	s.heartbeat = in.now.Add(p.threshold)
	return s.settle(e)
}
