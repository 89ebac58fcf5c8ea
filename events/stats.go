// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"slices"
	"time"
)

// Names of the values of [Broadcaster.Metrics]. A name with a final slash is followed by a reason,
// such as "events_dropped/queue_full": a word out of a few dozen, usable as a label.
const (
	// MetricEmitted counts calls of Eventf and its kin: occurrences. Each of them ends up as
	// acknowledged, dropped, or is still unsent.
	MetricEmitted = "events_emitted"
	// MetricAcknowledged counts occurrences known to the server, as an object or in an object's
	// count.
	MetricAcknowledged = "events_acknowledged"
	// MetricDropped counts occurrences lost, by reason: see the Drop constants.
	MetricDropped = "events_dropped/"
	// MetricCalls counts API calls by kind: create, patch, read (empty patch), roster.
	MetricCalls = "event_calls/"
	// MetricRetries counts failed calls to be made again, by the reason of the failure.
	MetricRetries = "event_retries/"
	// MetricRejected counts calls permanently refused by the server, by its reason.
	MetricRejected = "event_rejections/"
	// MetricSeries counts transitions of series: finished, adopted, abandoned (by a killed
	// process), evicted, renewed (the stored object had expired).
	MetricSeries = "event_series/"
	// MetricAnnotations counts annotations left out because the server would not have taken them.
	MetricAnnotations = "event_annotations_dropped"
	// MetricWatchDropped counts events missed by slow watchers.
	MetricWatchDropped = "event_watch_dropped"
	// GaugeSeries is the number of series in the table, whatever their phase.
	GaugeSeries = "event_series_active"
	// GaugeQueue is the number of series with a call to make.
	GaugeQueue = "event_queue_length"
	// GaugeUnsent is the number of occurrences not yet known to the server.
	GaugeUnsent = "events_unsent"
	// GaugeGate is for how many seconds nothing will be sent; 0 when the gate is open.
	GaugeGate = "event_gate_closed_seconds"
)

// Reasons of MetricDropped.
const (
	DropInvalid     = "invalid"
	DropQueueFull   = "queue_full" // too many series never written
	DropTableFull   = "table_full" // too many evicted series with their last write to make
	DropRateLimited = "rate_limited"
	DropObjectCap   = "object_cap"
	DropRejected    = "rejected"
	DropShutdown    = "shutdown"
	DropNoSink      = "no_sink"
)

// Stats is a snapshot of a broadcaster. Emitted = Acknowledged + the sum of Dropped + Unsent, at
// any moment.
type Stats struct {
	Emitted, Acknowledged, Unsent int64
	Dropped                       map[string]int64 // by reason
	Rejected                      map[string]int64 // calls, by the server's reason
	Retries                       map[string]int64 // calls, by reason
	Calls                         map[string]int64 // by kind
	Transitions                   map[string]int64 // of series, see MetricSeries
	WatchDropped                  int64
	AnnotationsDropped            int64
	Series, Queue                 int
	GateClosed                    time.Duration
}

// newCounters returns a broadcaster's counters, guarded by its lock. Maps stay small: their keys
// are words of this package or of the API. Series, Queue and GateClosed are filled in by Stats.
func newCounters() Stats {
	return Stats{
		Dropped: map[string]int64{}, Rejected: map[string]int64{}, Retries: map[string]int64{}, Calls: map[string]int64{}, Transitions: map[string]int64{},
	}
}

func (c *Stats) drop(reason string, n int64) {
	if n > 0 {
		c.Dropped[reason] += n
	}
}

// Stats returns a consistent snapshot. Safe for concurrent use.
func (b *Broadcaster) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.count
	for _, by := range []*map[string]int64{&s.Dropped, &s.Rejected, &s.Retries, &s.Calls, &s.Transitions} {
		*by = maps.Clone(*by)
	}
	s.Series, s.Queue, s.GateClosed = b.tab.all, b.tab.queue.Len(), b.gates[scope{}].closed(time.Now())
	return s
}

// Metrics yields the values of Stats by name, for a collector: metrics.NewEvents of this project's
// root module serves them to Prometheus. Safe for concurrent use.
func (b *Broadcaster) Metrics(yield func(name string, v float64)) {
	s := b.Stats()
	yield(MetricEmitted, float64(s.Emitted))
	yield(MetricAcknowledged, float64(s.Acknowledged))
	yield(MetricAnnotations, float64(s.AnnotationsDropped))
	yield(MetricWatchDropped, float64(s.WatchDropped))
	for _, m := range []struct {
		prefix string
		by     map[string]int64
	}{{MetricDropped, s.Dropped}, {MetricCalls, s.Calls}, {MetricRetries, s.Retries}, {MetricRejected, s.Rejected}, {MetricSeries, s.Transitions}} {
		for _, k := range slices.Sorted(maps.Keys(m.by)) {
			yield(m.prefix+k, float64(m.by[k]))
		}
	}
	yield(GaugeSeries, float64(s.Series))
	yield(GaugeQueue, float64(s.Queue))
	yield(GaugeUnsent, float64(s.Unsent))
	yield(GaugeGate, s.GateClosed.Seconds())
}
