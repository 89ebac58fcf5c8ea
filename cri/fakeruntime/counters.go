// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import "maps"

// Stats are counters since [New], of the runtime's side, not a client's.
type Stats struct {
	// RPCs counts calls by method, such as "ListContainers", as they arrive.
	RPCs map[string]uint64
	// Events counts events.
	Events EventStats
	// Blocked tells how callers were held up because a subscriber did not read.
	Blocked BlockedStats
	// Subscribers is the number of open event streams, as far as the runtime has noticed.
	Subscribers int
}

// EventStats counts events.
type EventStats struct {
	// Emitted were put into the runtime's queue; Discarded found no room or nobody; Expired grew too
	// old in the backlog; Lost left the queue and reached nobody, Expired included.
	Emitted   uint64
	Discarded uint64
	Expired   uint64
	Lost      uint64
}

// BlockedStats counts events without room in a subscriber's channel. A real runtime's caller hangs
// meanwhile; the direct methods do not, but count the same.
type BlockedStats struct {
	// Events had to wait, Now of them still do.
	Events uint64
	Now    int
}

// Stats returns the counters at this moment. The caller owns the result.
func (rt *Runtime) Stats() Stats {
	rt.lock()
	defer rt.mu.Unlock()
	return Stats{RPCs: maps.Clone(rt.rpcs), Events: rt.counts, Blocked: rt.blocked, Subscribers: len(rt.hub.subs)}
}
