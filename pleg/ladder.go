// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// ladder is a doubling delay: each step is as long as all before. The zero ladder delays nothing.
type ladder struct {
	step time.Duration // the last delay; 0 at the foot
	end  instant       `prove:"timers"` // when the delay is over
}

// climb begins a delay at the end of a read, and returns the end of the delay. The step doubles,
// within least and most, if that read had waited for the end of the last delay.
// Otherwise the step does not grow: reads for lists and waiters come at times of their own, and a
// dozen of them must not put the next read off by minutes.
func (l *ladder) climb(read span, least, most time.Duration) instant {
	switch {
	case l.step == 0:
		l.step = least
	case read.began >= l.end:
		l.step = doubled(l.step, most)
	}
	l.step = min(max(l.step, least), most) // the delay of another kind may have been shorter, or longer
	l.end = read.ended.add(l.step)
	return l.end
}

// turns begins the growth anew, as what is delayed has come to fail, or to succeed, if the delay is
// long: a long delay after the ones is none for the others. Short delays go on growing, or what
// fails one time in ten, or every other time, would be tried again without end.
func (l *ladder) turns(long time.Duration) {
	if l.step >= long {
		*l = ladder{}
	}
}
