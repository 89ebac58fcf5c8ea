// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "sync/atomic"

// Stats holds the counts of a client since it was made.
type Stats struct {
	// Calls counts the calls made, by CRI method name. Methods never called are left out.
	Calls map[string]uint64
	// Connects counts the connections made; all but the first are reconnects.
	Connects uint64
	// Abandoned counts the connections closed because of a hung runtime: calls met their deadline, and
	// the socket had been replaced or nothing had arrived for long.
	Abandoned uint64
	// Unattributed is the number of containers of the last listing without a pod UID label and with a
	// sandbox that the runtime does not list. Listings leave them out.
	Unattributed int
	// Malformed counts items of lists, answers and event payloads that were left out: malformed or
	// incomplete, or with an ID or pod UID that is empty, longer than 1024 bytes or not valid UTF-8.
	Malformed uint64
	// Duplicates counts listed items with an ID seen before in the same listing. The later phase
	// holds.
	Duplicates uint64
	// UnknownEvents counts events of a type unknown to this package, of a later CRI. Each causes a read
	// of its pod.
	UnknownEvents uint64
	// UnknownStates counts the items of answers in a state unknown to the CRI, treated as UNKNOWN. An
	// item listed alike in consecutive listings counts once.
	UnknownStates uint64
	// IncompleteEvents counts events, removals apart, without a sandbox status, or, of a container,
	// without any container status. Each costs a read of its pod or a list.
	IncompleteEvents uint64
	// OversizedEvents counts events of more than 16 MiB, the limit of a kubelet's own client.
	OversizedEvents uint64
	// LateExits counts events about the end of a container that were created a second or more, by the
	// runtime's clock, after the end given in the container's status.
	LateExits uint64
	// StreamingLists says whether the runtime has StreamPodSandboxes and StreamContainers:
	// "unknown" until the first listing of the present connection, then "yes" or "no".
	StreamingLists string
	// FilledStatuses says whether PodSandboxStatus brings container statuses along: "unknown" until
	// a pod with containers was inspected over the present connection, then "yes" or "no".
	FilledStatuses string
}

// counters is the live side of Stats.
type counters struct {
	calls                                [methods]atomic.Uint64
	unattributed                         atomic.Int64
	malformed, duplicates, unknownEvents atomic.Uint64
	unknownStates, incomplete, oversized atomic.Uint64
	lateExits                            atomic.Uint64
}

// Stats returns a snapshot. Stats may be called at any time from any goroutine.
func (c *Client) Stats() Stats {
	s := Stats{
		Calls:         make(map[string]uint64),
		Connects:      c.connects.Load(),
		Abandoned:     c.monitor.abandoned.Load(),
		Unattributed:  int(c.counter.unattributed.Load()),
		Malformed:     c.counter.malformed.Load(),
		Duplicates:    c.counter.duplicates.Load(),
		UnknownEvents: c.counter.unknownEvents.Load(),
		UnknownStates: c.counter.unknownStates.Load(),
		LateExits:     c.counter.lateExits.Load(),

		IncompleteEvents: c.counter.incomplete.Load(),
		OversizedEvents:  c.counter.oversized.Load(),
	}
	t := c.capabilities.Load()
	s.FilledStatuses = t.fillsStatuses.String()
	s.StreamingLists = t.has[streamContainers].String()
	if t.has[streamPodSandboxes].no() {
		s.StreamingLists = t.has[streamPodSandboxes].String()
	}
	for m := range methods {
		if n := c.counter.calls[m].Load(); n > 0 {
			s.Calls[m.String()] = n
		}
	}
	return s
}

// Counts yields the numbers of Stats by short names, in the form of a metrics source: pass Counts
// to SetGauges of a metrics set, beside the generator's Gauges. Counts may be called at any time
// from any goroutine, and does not block.
func (c *Client) Counts(yield func(name string, v float64)) {
	c.Stats().counts(yield)
}

func (s Stats) counts(yield func(name string, v float64)) {
	for method, n := range s.Calls {
		yield("client_calls/"+method, float64(n))
	}
	yield("client_connects", float64(s.Connects))
	yield("client_abandoned", float64(s.Abandoned))
	yield("client_unattributed", float64(s.Unattributed))
	yield("client_malformed", float64(s.Malformed))
	yield("client_duplicates", float64(s.Duplicates))
	yield("client_unknown_events", float64(s.UnknownEvents))
	yield("client_unknown_states", float64(s.UnknownStates))
	yield("client_incomplete_events", float64(s.IncompleteEvents))
	yield("client_oversized_events", float64(s.OversizedEvents))
	yield("client_late_exits", float64(s.LateExits))
}
