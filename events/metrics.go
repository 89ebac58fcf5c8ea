// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"slices"
	"time"
)

// Metrics takes what the recorder counts. Names are the Metric constants of this package; where one
// ends in a slash, a reason follows, such as "events_dropped/queue_full": what stands after the
// slash is made to be a label, and is one of a few dozen words. Add is called without locks, from
// the goroutine that runs the broadcaster and from callers of Gauges, never from Eventf. It must
// not block.
type Metrics interface {
	Add(name string, n int)
}

// Counters.
const (
	// MetricEmitted counts calls of Eventf and its kin: occurrences. Every one of them ends up as
	// acknowledged, dropped, or is still unsent.
	MetricEmitted = "events_emitted"
	// MetricAcknowledged counts occurrences that the server was told of, as an object or in the
	// count of one.
	MetricAcknowledged = "events_acknowledged"
	// MetricDropped counts occurrences lost, by reason: invalid, queue_full, rate_limited,
	// object_cap, rejected, shutdown, no_sink.
	MetricDropped = "events_dropped/"
	// MetricCalls counts API calls by kind: create, patch, read (empty patch), roster, list.
	MetricCalls = "event_calls/"
	// MetricRetries counts calls that will be made again, by the reason of the failure.
	MetricRetries = "event_retries/"
	// MetricRejected counts calls that the server refused for good, by its reason.
	MetricRejected = "event_rejections/"
	// MetricSeries counts what became of series: finished, adopted, abandoned (by a process that
	// was killed), evicted, renewed (the stored object had expired).
	MetricSeries = "event_series/"
	// MetricAnnotations counts annotations left out because the server would not have taken them.
	MetricAnnotations = "event_annotations_dropped"
	// MetricWatchDropped counts events that a slow watcher missed.
	MetricWatchDropped = "event_watch_dropped"
)

// Gauges.
const (
	// GaugeSeries is the number of series in the table, whatever their phase.
	GaugeSeries = "event_series_active"
	// GaugeQueue is the number of series that owe the server a call.
	GaugeQueue = "event_queue_length"
	// GaugeUnsent is the number of occurrences that the server does not know of yet.
	GaugeUnsent = "events_unsent"
	// GaugeGate is for how many seconds nothing will be sent; 0 when the gate is open.
	GaugeGate = "event_gate_closed_seconds"
)

// Reasons of MetricDropped.
const (
	DropInvalid     = "invalid"
	DropQueueFull   = "queue_full"
	DropRateLimited = "rate_limited"
	DropObjectCap   = "object_cap"
	DropRejected    = "rejected"
	DropShutdown    = "shutdown"
	DropNoSink      = "no_sink"
)

type noMetrics struct{}

func (noMetrics) Add(string, int) {}

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

// newCounters is what a broadcaster counts in, under its lock. Maps stay small: their keys are
// words of this package or of the API. Series, Queue and GateClosed are filled in by Stats.
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

// each yields every counter under its metric's name.
func (c *Stats) each(yield func(name string, n int64)) {
	yield(MetricEmitted, c.Emitted)
	yield(MetricAcknowledged, c.Acknowledged)
	yield(MetricAnnotations, c.AnnotationsDropped)
	yield(MetricWatchDropped, c.WatchDropped)
	for _, m := range []struct {
		prefix string
		by     map[string]int64
	}{{MetricDropped, c.Dropped}, {MetricCalls, c.Calls}, {MetricRetries, c.Retries}, {MetricRejected, c.Rejected}, {MetricSeries, c.Transitions}} {
		for _, k := range slices.Sorted(maps.Keys(m.by)) {
			yield(m.prefix+k, m.by[k])
		}
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
	s.Series, s.Queue, s.GateClosed = b.tab.all, b.tab.queue.Len()+b.tab.urgent.Len(), b.gate.closed(time.Now())
	return s
}

// Gauges yields what is now, and first pushes counters that are due to Metrics. Safe for concurrent
// use.
func (b *Broadcaster) Gauges(yield func(name string, v float64)) {
	b.pushMetrics()
	s := b.Stats()
	yield(GaugeSeries, float64(s.Series))
	yield(GaugeQueue, float64(s.Queue))
	yield(GaugeUnsent, float64(s.Unsent))
	yield(GaugeGate, s.GateClosed.Seconds())
}

// pushMetrics hands on what was counted since the last time.
func (b *Broadcaster) pushMetrics() {
	if _, ok := b.opts.Metrics.(noMetrics); ok {
		return
	}
	b.pushMu.Lock()
	defer b.pushMu.Unlock()
	due := make(map[string]int64)
	b.mu.Lock()
	b.count.each(func(name string, n int64) {
		if d := n - b.pushed[name]; d > 0 {
			due[name], b.pushed[name] = d, n
		}
	})
	b.mu.Unlock()
	for name, n := range due {
		b.opts.Metrics.Add(name, int(n))
	}
}
