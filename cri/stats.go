// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "sync/atomic"

// Stats is what a client has done and seen since it was made.
type Stats struct {
	// Calls counts the calls made, by CRI method name. Methods never called are left out.
	Calls map[string]uint64
	// Connects counts the connections made; all but the first are reconnects.
	Connects uint64
	// Abandoned counts the connections that the client gave up because the runtime behind them
	// hung: calls met their deadline, and the socket had been replaced or nothing had been heard
	// for long.
	Abandoned uint64
	// Unattributed is the number of containers of the last listing that have no pod UID label and
	// whose sandbox the runtime does not list. They are left out of listings.
	Unattributed int
	// Malformed counts listed items and items of answers and event payloads that were left out
	// because they are malformed or incomplete, or because their ID or pod UID is empty, longer
	// than 1024 bytes or not valid UTF-8.
	Malformed uint64
	// Duplicates counts listed items whose ID was listed before in the same listing. The later
	// phase holds.
	Duplicates uint64
	// UnknownEvents counts events of a type that this client does not know. They were skipped.
	UnknownEvents uint64
	// UnknownStates counts the items of answers in a state that the CRI does not have; what
	// listing after listing shows alike counts once. They are taken for items in the state UNKNOWN.
	UnknownStates uint64
	// IncompleteEvents counts events, removals apart, without the status of the sandbox, or, if they
	// are about a container, without that of any container. Each costs a read of its pod or a list.
	IncompleteEvents uint64
	// OversizedEvents counts events of more than 16 MiB, which is what a kubelet's own client takes.
	OversizedEvents uint64
	// LateExits counts events that told of the end of a container a second or more, by the runtime's
	// clock, after the end that the container's status gives.
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

// Stats returns a snapshot. It may be called at any time from any goroutine.
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

		FilledStatuses: c.capabilities.Load().fillsStatuses.String(),
	}
	t := c.capabilities.Load()
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

// The names under which Counts yields.
const (
	countCalls        = "client_calls/" // before the CRI method
	countConnects     = "client_connects"
	countAbandoned    = "client_abandoned"
	countUnattributed = "client_unattributed"
	countMalformed    = "client_malformed"
	countDuplicates   = "client_duplicates"
	countUnknown      = "client_unknown_events"
	countStates       = "client_unknown_states"
	countIncomplete   = "client_incomplete_events"
	countOversized    = "client_oversized_events"
	countLateExits    = "client_late_exits"
)

// Counts yields the numbers of Stats by short names, as a set of metrics takes them: give it to
// that set's SetGauges beside the generator's Gauges. It may be called at any time from any
// goroutine, and does not block.
func (c *Client) Counts(yield func(name string, v float64)) {
	s := c.Stats()
	for method, n := range s.Calls {
		yield(countCalls+method, float64(n))
	}
	yield(countConnects, float64(s.Connects))
	yield(countAbandoned, float64(s.Abandoned))
	yield(countUnattributed, float64(s.Unattributed))
	yield(countMalformed, float64(s.Malformed))
	yield(countDuplicates, float64(s.Duplicates))
	yield(countUnknown, float64(s.UnknownEvents))
	yield(countStates, float64(s.UnknownStates))
	yield(countIncomplete, float64(s.IncompleteEvents))
	yield(countOversized, float64(s.OversizedEvents))
	yield(countLateExits, float64(s.LateExits))
}
