// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"maps"
	"time"
)

// Stats are counters since [New], of the runtime's side, not a client's.
type Stats struct {
	// RPCs counts calls by method, such as "ListContainers", as they arrive.
	RPCs map[string]uint64
	// Events counts events.
	Events EventStats
	// Blocked tells how callers were held up because a subscriber did not read.
	Blocked BlockedStats
	// Subscribers are the open event streams, as far as the runtime has noticed.
	Subscribers []SubscriberStats
}

// EventStats counts events.
type EventStats struct {
	// Emitted were put into the runtime's queue; Delivered is the number of writes to a stream.
	// Duplicates are the part of Emitted added by the fault duplicate.
	Emitted    uint64
	Delivered  uint64
	Duplicates uint64
	// Faulted were suppressed by a fault; Discarded found no room or nobody; Expired grew too old
	// in the backlog; Lost left the queue and reached nobody, Expired included.
	Faulted   uint64
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
	// Total and Max are the waiting times of the released callers.
	Total time.Duration
	Max   time.Duration
}

// SubscriberStats is an open event stream.
type SubscriberStats struct {
	// ID numbers the streams, from 1, over the runtime's life.
	ID    uint64
	Since time.Time
	// Sent events were written to the stream, Pending events wait, Dropped events were discarded
	// during its life.
	Sent    uint64
	Pending uint64
	Dropped uint64
	// Stalled: a fault made the stream hang open.
	Stalled bool
}

// Stats returns the counters at this moment. The caller owns the result.
func (rt *Runtime) Stats() Stats {
	rt.lock()
	defer rt.mu.Unlock()
	s := Stats{RPCs: maps.Clone(rt.rpcs), Events: rt.counts, Blocked: rt.blocked}
	for _, sub := range rt.hub.subs {
		st := SubscriberStats{ID: sub.id, Since: sub.since, Sent: sub.sent, Dropped: sub.dropped, Stalled: sub.stalled}
		if rt.cfg.Profile.Delivery == DeliverCompete {
			st.Pending = uint64(len(rt.hub.log))
		} else if !sub.stalled {
			st.Pending = rt.hub.tail() - sub.next
		}
		st.Pending += uint64(len(sub.replay))
		s.Subscribers = append(s.Subscribers, st)
	}
	return s
}
