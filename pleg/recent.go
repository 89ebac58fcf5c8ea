// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// recent is how long the longest of the recent reads, or lists, lasted. The duration fades by an
// eighth with each shorter call, and by half with each recentHalf without any: the speed of a
// runtime at the start of its node says little of its speed an hour later. The zero recent knows
// nothing.
type recent struct {
	longest time.Duration

	// at is when the last one ended.
	at instant
}

// recentHalf is the time in which what is known fades by half.
const recentHalf = time.Minute

// add notes how long a call that ends now has lasted.
func (r *recent) add(took time.Duration, now instant) {
	longest := r.asOf(now)
	r.longest = max(took, longest-(longest-took)/8)
	r.at = now
}

// asOf returns how long the longest lasted, as judged at the given time; zero if nothing is known.
// What is under way is judged as of its begin: it does not grow older than others by lasting long.
func (r recent) asOf(at instant) time.Duration {
	if r.longest == 0 {
		return 0
	}
	halves := max(0, at.sub(r.at)) / recentHalf
	return max(1, r.longest>>min(halves, 62))
}
