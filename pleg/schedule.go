// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// schedule decides when the next relist is due. Trust is earned: the period starts at the base,
// doubles after a relist that found nothing which the stream had not told, once in a period at
// most, and falls back to the base when an event was missed or the stream lost.
type schedule struct {
	base, max time.Duration
	period    time.Duration
	ended     instant // when the last relist ended
	raised    instant // when the period last changed
	asked     instant // when a relist was asked for before its time; never if not
	askedNow  bool    // the one asked for need not wait for the base period
}

func newSchedule(base, max time.Duration) schedule {
	return schedule{base: base, max: max, period: base, asked: never}
}

// due returns when the next relist shall begin: at the start, a period after the last one, or when
// asked, but not sooner than a base period after the last one unless it cannot wait.
func (s *schedule) due() instant {
	if s.ended == 0 {
		return 0
	}
	due := s.ended.add(s.period)
	if s.asked == never {
		return due
	}
	if s.askedNow {
		return min(due, s.asked)
	}
	return min(due, max(s.asked, s.ended.add(s.base)))
}

// ask wants a relist that begins after now: at once, or as soon as the base period allows.
func (s *schedule) ask(now instant, atOnce bool) {
	s.asked, s.askedNow = min(s.asked, now), s.askedNow || atOnce
}

// began is told of a relist that starts.
func (s *schedule) began() { s.asked, s.askedNow = never, false }

// finished is told of a relist that ended.
func (s *schedule) finished(now instant) { s.ended = now }

// trust doubles the period: a relist found nothing that the stream had not told.
func (s *schedule) trust(now instant) {
	if now.sub(s.raised) >= s.period {
		s.period, s.raised = doubled(s.period, s.max), now
	}
}

// distrust takes the period back to the base.
func (s *schedule) distrust(now instant) { s.period, s.raised = s.base, now }
