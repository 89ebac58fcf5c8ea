// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"time"
)

// instant is a moment by the monotonic clock, in nanoseconds since the generator was made. Zero is before everything; so every
// moment that the clock shows is at least 1. It is a third of a time.Time and orders the same way whatever the wall clock does.
type instant int64

// never is later than everything.
const never = instant(math.MaxInt64)

func (i instant) add(d time.Duration) instant {
	if i > never-instant(d) {
		return never
	}
	return i + instant(d)
}

// after returns the moment d after i, or the beginning if i is none.
func (i instant) after(d time.Duration) instant {
	if i == 0 {
		return 0
	}
	return i.add(d)
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// clock converts between instants and times of this process.
type clock struct{ epoch time.Time }

func (c clock) now() instant                { return c.instant(time.Now()) }
func (c clock) instant(t time.Time) instant { return max(0, instant(t.Sub(c.epoch))) + 1 }
func (c clock) time(i instant) time.Time    { return c.epoch.Add(time.Duration(i - 1)) }
