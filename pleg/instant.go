// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"time"
)

// instant is a moment by the monotonic clock, in nanoseconds since the generator was made. Zero is
// before everything; so every moment that the clock shows is at least 1. It is a third of a
// time.Time and orders the same way whatever the wall clock does.
//
// Arithmetic of instants never overflows: a sum stops at zero and at never, whatever the duration.
type instant int64

// never is later than everything, and stays so whatever is added to it or taken away.
const never = instant(math.MaxInt64)

// add returns the moment d after i, or before i if d is negative.
func (i instant) add(d time.Duration) instant {
	switch {
	case i == never || d > 0 && i > never-instant(d):
		return never
	}
	return max(0, i+instant(d)) // i is not negative, so this does not overflow for a negative d
}

// next returns the first moment after i.
func (i instant) next() instant { return i.add(1) }

// after returns the moment d after i, or the beginning if i is none.
func (i instant) after(d time.Duration) instant {
	if i == 0 {
		return 0
	}
	return i.add(d)
}

// sub returns how long after j the moment i is. Neither is negative, so the difference fits.
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// doubled returns twice a delay, or most if that is less.
func doubled(d, most time.Duration) time.Duration {
	if d > most/2 {
		return most
	}
	return 2 * d
}

// sum returns the sum of two delays, or the longest there is.
func sum(d, e time.Duration) time.Duration {
	if e > math.MaxInt64-d {
		return math.MaxInt64
	}
	return d + e
}

// clock converts between instants and times of this process.
type clock struct{ epoch time.Time }

func (c clock) now() instant                { return c.instant(time.Now()) }
func (c clock) instant(t time.Time) instant { return instant(max(0, t.Sub(c.epoch))).next() }
func (c clock) time(i instant) time.Time    { return c.epoch.Add(time.Duration(i - 1)) }
