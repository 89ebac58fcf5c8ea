// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"slices"
	"time"
)

// Reasons of Stats.Dropped.
const (
	DropInvalid   = "invalid"
	DropQueueFull = "queue_full" // too many series never written
	DropTableFull = "table_full" // too many evicted series with their last write to make
	// DropRateLimited no longer occurs: an event without a token is counted in a combined series.
	DropRateLimited = "rate_limited"
	DropObjectCap   = "object_cap"
	DropRejected    = "rejected"
	DropShutdown    = "shutdown"
	DropNoSink      = "no_sink"
)

// Stats is a snapshot of a broadcaster. Emitted = Acknowledged + the sum of Dropped + Unsent, at
// any moment. The keys of the maps are words of this package or of the API.
type Stats struct {
	Emitted      int64            // occurrences: calls of Eventf and its kin
	Acknowledged int64            // occurrences known to the server, as an object or in a count
	Unsent       int64            // occurrences not yet known to the server
	Dropped      map[string]int64 // occurrences lost, by reason: see the Drop constants
	Calls        map[string]int64 // API calls that have ended, by kind: create, patch, read (empty patch), roster
	Retries      map[string]int64 // failed calls to be made again, by the reason of the failure
	Rejected     map[string]int64 // calls permanently refused by the server, by its reason
	// Transitions of series: finished, adopted, abandoned (by a killed process), evicted, renewed
	// (the stored object had expired).
	Transitions        map[string]int64
	AnnotationsDropped int64 // those the server would not have taken
	WatchDropped       int64 // events missed by slow watchers
	Series             int   // in the table, whatever their phase
	Queue              int   // series with a call to make
	// GateClosed is for how long nothing will be sent, for trouble of the server as a whole, or of the
	// own client (ClientRateLimit). Trouble of a namespace or an object closes only that.
	GateClosed time.Duration
	// Closed is the number of closed scopes by kind: server (0 or 1), namespace, call (a kind of calls
	// in a namespace, for a role) and object. Each is tried again by one call at a time.
	Closed map[string]int
}

func (c *Stats) drop(reason string, n int64) {
	if n > 0 {
		c.Dropped[reason] += n
	}
}

// turn counts a transition of a series.
func (c *Stats) turn(to string) { c.Transitions[to]++ }

// Stats returns a consistent snapshot. Safe for concurrent use.
func (b *Broadcaster) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.core.count
	for _, by := range []*map[string]int64{&s.Dropped, &s.Rejected, &s.Retries, &s.Calls, &s.Transitions} {
		*by = maps.Clone(*by)
	}
	s.Series = b.core.table.all
	s.Queue = b.core.queue.waiting
	s.Closed = b.core.queue.closed()
	server := &b.core.queue.server
	if server.failing() {
		s.GateClosed = max(time.Until(server.until), 0)
	}
	return s
}

// Metrics yields the values of Stats by name, for a collector: metrics.NewEvents of this project's
// root module serves them to Prometheus. The key in a map follows a slash, as in
// "events_dropped/queue_full". Safe for concurrent use.
func (b *Broadcaster) Metrics(yield func(name string, v float64)) {
	s := b.Stats()
	yield("events_emitted", float64(s.Emitted))
	yield("events_acknowledged", float64(s.Acknowledged))
	yield("event_annotations_dropped", float64(s.AnnotationsDropped))
	yield("event_watch_dropped", float64(s.WatchDropped))
	for _, m := range []struct {
		prefix string
		by     map[string]int64
	}{
		{"events_dropped/", s.Dropped}, {"event_calls/", s.Calls}, {"event_retries/", s.Retries},
		{"event_rejections/", s.Rejected}, {"event_series/", s.Transitions},
	} {
		for _, k := range slices.Sorted(maps.Keys(m.by)) {
			yield(m.prefix+k, float64(m.by[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Closed)) {
		yield("event_scopes_closed/"+k, float64(s.Closed[k]))
	}
	yield("event_series_active", float64(s.Series))
	yield("event_queue_length", float64(s.Queue))
	yield("events_unsent", float64(s.Unsent))
	yield("event_gate_closed_seconds", s.GateClosed.Seconds())
}
