// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// Metrics takes what the generator counts and times. Names are the Metric constants of this
// package; an implementation ignores the ones that it does not know. Methods are called from the
// generator's goroutines, must be safe for concurrent use and must not block. Gauges are not
// pushed: [Generator.Gauges] yields them when somebody looks.
type Metrics interface {
	// Add adds n to the counter of that name.
	Add(name string, n int)
	// Observe adds a duration to the histogram of that name.
	Observe(name string, d time.Duration)
}

// Counters.
const (
	// MetricRelists counts finished lists of the whole runtime, whatever asked for them.
	MetricRelists = "relists"
	// MetricRelistErrors counts lists of the whole runtime that failed.
	MetricRelistErrors = "relist_errors"
	// MetricInspections counts per-pod reads, finished or failed.
	MetricInspections = "inspections"
	// MetricInspectionErrors counts per-pod reads that failed.
	MetricInspectionErrors = "inspection_errors"
	// MetricInterruptedInspections counts per-pod reads that hung and were ended because other pods
	// waited for their workers. They are made again.
	MetricInterruptedInspections = "interrupted_inspections"
	// MetricClaims counts claims received (KEP-3386 evented_pleg_notifications_received).
	MetricClaims = "claims"
	// MetricStaleClaims counts claims that told nothing new: old, duplicated or replayed.
	MetricStaleClaims = "stale_claims"
	// MetricReplayedClaims counts claims whose stamp lies before the stream was opened, or in the
	// future. They tell no latency.
	MetricReplayedClaims = "replayed_claims"
	// MetricDiscardedClaims counts claims that found the mailbox full; a relist stands in for them.
	MetricDiscardedClaims = "discarded_claims"
	// MetricMissedEvents counts changes to Running or Exited that a read found and no claim
	// confirmed although the stream was up all the while (KEP-3386 kube_pod_missed_events).
	MetricMissedEvents = "missed_events"
	// MetricUnheardChanges counts changes to Running or Exited that a read found and no claim
	// confirmed while the stream was down, or claims were discarded: nobody listened, so the
	// runtime is not to blame.
	MetricUnheardChanges = "unheard_changes"
	// MetricMissedCreations and MetricMissedRemovals count creations and removals that only a read
	// told of although the stream was up. Runtimes differ in what they send for them, so they cost
	// no trust.
	MetricMissedCreations = "missed_creations"
	MetricMissedRemovals  = "missed_removals"
	// MetricOverruledClaims counts claims that a read took back.
	MetricOverruledClaims = "overruled_claims"
	// MetricRegressions counts phases that one read took back from an earlier read, such as a
	// sandbox that recovers.
	MetricRegressions = "regressions"
	// MetricEvents counts lifecycle events handed to Watch.
	MetricEvents = "events"
	// MetricOwed counts events that found Watch full and became a PodSync owed.
	MetricOwed = "owed_events"
	// MetricDiscardedEvents counts PodSyncs that were owed for pods long gone and given up because
	// OwedMax was reached.
	MetricDiscardedEvents = "discarded_events"
	// MetricConnects counts streams that connected (evented_pleg_connection_success_count).
	MetricConnects = "connects"
	// MetricConnectErrors counts streams that failed or ended (evented_pleg_connection_error_count).
	MetricConnectErrors = "connect_errors"
)

// Histograms.
const (
	// MetricRelistDuration is the time from the start of a list of everything to its application.
	MetricRelistDuration = "relist_duration"
	// MetricRelistInterval is the time between the starts of two such lists.
	MetricRelistInterval = "relist_interval"
	// MetricInspectionDuration is the time that a per-pod read took.
	MetricInspectionDuration = "inspection_duration"
	// MetricLatency is the time from a claim's stamp to its receipt by the wall clock, never
	// negative (evented_pleg_connection_latency_seconds).
	MetricLatency = "latency"
)

// Gauges, yielded by [Generator.Gauges].
const (
	GaugeStreamState       = "stream_state" // the number of the StreamState
	GaugeRelistPeriod      = "relist_period_seconds"
	GaugeHealthy           = "healthy"                 // 1 if Health returns nil, else 0
	GaugeLastRelist        = "last_relist_age_seconds" // since the last finished relist, or since the start
	GaugeLastSeen          = "last_seen_seconds"       // Unix time of the last finished relist; none before the first
	GaugeWaiters           = "waiters"
	GaugeDirtyPods         = "dirty_pods"
	GaugeInspecting        = "inspecting"
	GaugeOwedPods          = "owed_pods"
	GaugeRunningPods       = "running_pods"
	GaugeContainersCreated = "containers_created"
	GaugeContainersRunning = "containers_running"
	GaugeContainersExited  = "containers_exited"
	GaugeContainersUnknown = "containers_unknown"
)

type noMetrics struct{}

func (noMetrics) Add(string, int)               {}
func (noMetrics) Observe(string, time.Duration) {}
