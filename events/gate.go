// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import "time"

// maxRetryAfter is the longest Retry-After that is honoured.
const maxRetryAfter = 5 * time.Minute

// gate holds back every write of the recorder while the server, or the way to it, is in trouble. It
// is a value without clock or lock.
type gate struct {
	base, limit time.Duration
	failures    int
	until       time.Time
}

// fail closes the gate for the larger of what the server asked for and an exponential delay with
// jitter.
func (g gate) fail(now time.Time, asked time.Duration, rand float64) gate {
	d := g.limit
	if g.failures < 30 {
		d = min(g.base<<g.failures, g.limit)
	}
	d = d/2 + time.Duration(float64(d/2)*rand)
	g.failures++
	g.until = now.Add(max(d, min(asked, maxRetryAfter)))
	return g
}

// succeed opens it.
func (g gate) succeed() gate {
	g.failures, g.until = 0, time.Time{}
	return g
}

// closed reports for how long nothing may be sent.
func (g gate) closed(now time.Time) time.Duration {
	return max(g.until.Sub(now), 0)
}

// probing is true after a failure and before the next success: one call at a time then.
func (g gate) probing() bool { return g.failures > 0 }
