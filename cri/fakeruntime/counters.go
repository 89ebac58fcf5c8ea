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
	RPCs map[string]uint64 `json:"rpcs"`
	// Events counts events.
	Events EventStats `json:"events"`
	// Blocked tells how callers were held up because a subscriber did not read.
	Blocked BlockedStats `json:"blocked"`
	// Subscribers are the open event streams, as far as the runtime has noticed.
	Subscribers []SubscriberStats `json:"subscribers"`
}

// EventStats counts events.
type EventStats struct {
	// Emitted were put into the runtime's queue; Delivered is the number of writes to a stream.
	// Duplicates are the part of Emitted added by the fault duplicate.
	Emitted    uint64 `json:"emitted"`
	Delivered  uint64 `json:"delivered"`
	Duplicates uint64 `json:"duplicates"`
	// Faulted were suppressed by a fault; Discarded found no room or nobody; Expired grew too old
	// in the backlog; Lost left the queue and reached nobody, Expired included.
	Faulted   uint64 `json:"faulted"`
	Discarded uint64 `json:"discarded"`
	Expired   uint64 `json:"expired"`
	Lost      uint64 `json:"lost"`
}

// BlockedStats counts events without room in a subscriber's channel. A real runtime's caller hangs
// meanwhile; the direct methods do not, but count the same.
type BlockedStats struct {
	// Events had to wait, Now of them still do.
	Events uint64 `json:"events"`
	Now    int    `json:"now"`
	// Total and Max are the waiting times of the released callers.
	Total time.Duration `json:"totalNanoseconds"`
	Max   time.Duration `json:"maxNanoseconds"`
}

// SubscriberStats is an open event stream.
type SubscriberStats struct {
	// ID numbers the streams, from 1, over the runtime's life.
	ID    uint64    `json:"id"`
	Since time.Time `json:"since"`
	// Sent events were written to the stream, Pending events wait, Dropped events were discarded
	// during its life.
	Sent    uint64 `json:"sent"`
	Pending uint64 `json:"pending"`
	Dropped uint64 `json:"dropped"`
	// Stalled: a fault made the stream hang open.
	Stalled bool `json:"stalled"`
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
