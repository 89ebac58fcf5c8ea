// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"time"
)

// instant is a moment of the monotonic clock, in nanoseconds since the generator was made. Zero is
// before everything, and often means none. Any time before the generator was made, such as waiters
// may ask for, is 1, and the clock starts at 2: the first read begins after all of those.
//
// Arithmetic of instants never overflows: a sum stops at zero and at never, whatever the duration.
type instant int64

// never is later than every other instant; sums of never are never.
const never = instant(math.MaxInt64)

// add returns the moment d after i, or before i if d is negative.
func (i instant) add(d time.Duration) instant {
	switch {
	case i == never || d > 0 && i > never-instant(d):
		return never
	}
	return max(0, i+instant(d)) // i is not negative: a negative d cannot overflow here
}

// next returns the first moment after i.
func (i instant) next() instant { return i.add(1) }

// sub returns the time from j to i. Neither is negative, so the difference fits.
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// doubled returns twice a delay, but not more than most.
func doubled(d, most time.Duration) time.Duration {
	if d > most/2 {
		return most
	}
	return 2 * d
}

// sum returns the sum of two delays, or the longest duration.
func sum(d, e time.Duration) time.Duration {
	if e > math.MaxInt64-d {
		return math.MaxInt64
	}
	return d + e
}

// clock converts between instants and times of this process.
type clock struct{ epoch time.Time }

// firstInstant is when the generator was made.
const firstInstant = instant(2)

func (c clock) now() instant { return c.instant(time.Now()) }
func (c clock) time(i instant) time.Time {
	return c.epoch.Add(time.Duration(i - firstInstant))
}

func (c clock) instant(t time.Time) instant {
	if d := t.Sub(c.epoch); d >= 0 {
		return firstInstant.add(d)
	}
	return firstInstant - 1
}
