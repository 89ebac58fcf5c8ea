// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Schema names the form of a Result's JSON. It changes when a field changes its meaning or goes;
// new fields do not change it.
const Schema = "pleg-bench/run/v2"

// Result is the outcome of a run. docs/pleg-bench.md documents the JSON; parts that do not apply
// are left out.
type Result struct {
	Schema   string   `json:"schema"`
	OK       bool     `json:"ok"`
	Failures []string `json:"failures"`
	// Interrupted: the user ended the run before the cache was compared with the runtime.
	Interrupted bool `json:"interrupted"`
	// NoVerdict are those of the failures for which nothing was judged.
	NoVerdict []string      `json:"no_verdict"`
	Runtime   RuntimeResult `json:"runtime"`
	Load      LoadResult    `json:"load"`
	// Results of the generator under test.
	ComparisonResult
	Outage *OutageResult `json:"outage,omitempty"`
	// Comparison is the result of a generic PLEG on the same load at the same time.
	Comparison *ComparisonResult `json:"comparison,omitempty"`

	// Strangers are the pods of others that came while the load ran, on a real runtime.
	Strangers []string `json:"strangers"`

	// Series are the generators over time, for pages.
	Series []Series `json:"-"`
}

// Series is one generator, or one stream, over time.
type Series struct {
	Name string `json:"name"`
	// Points are the changes or events: when, from the begin, and how late, in seconds.
	Points []Point `json:"points"`
	// Samples are the generator's own numbers, in order.
	Samples []Sample `json:"samples"`
}

// Point is a moment and a delay, in seconds.
type Point [2]float64

// Sample is the state and the counts of a generator at one moment, in seconds from the begin.
type Sample struct {
	At    float64 `json:"at_seconds"`
	State string  `json:"state"`
	// Lists, Reads, Received, Missed and Failed count since the start. Missed includes the changes
	// that nobody could hear; Failed are lists and reads.
	Lists    int `json:"lists"`
	Reads    int `json:"reads"`
	Received int `json:"received"`
	Missed   int `json:"missed"`
	Failed   int `json:"failed"`
	// CPUSeconds and HeapBytes are those of a process of its own, 0 without one.
	CPUSeconds    float64 `json:"cpu_seconds"`
	HeapBytes     uint64  `json:"heap_bytes"`
	PeriodSeconds float64 `json:"relist_period_seconds"`
}

// RuntimeResult names the runtime of the run.
type RuntimeResult struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
	// Profile is the fake runtime's profile; empty for a real runtime.
	Profile string `json:"profile"`
}

// LoadResult is the load on the runtime.
type LoadResult struct {
	Pods            int      `json:"pods"`
	Containers      int      `json:"containers"`
	Rate            float64  `json:"rate"`
	DurationSeconds float64  `json:"duration_seconds"`
	Seed            uint64   `json:"seed"`
	Faults          []string `json:"faults"`
	// Changes is the number of intended state changes of the load, AchievedRate their number a
	// second.
	Changes      int            `json:"changes"`
	AchievedRate float64        `json:"achieved_rate"`
	Broken       int            `json:"broken"`
	Errors       map[string]int `json:"errors"`
	// FirstErrors has the first error of each CRI method that failed.
	FirstErrors map[string]string `json:"first_errors"`
	// CallSeconds is how long the runtime took for the calls of the load.
	CallSeconds LatencyResult `json:"call_seconds"`
}

// PLEGResult is the state and the work of the generator.
type PLEGResult struct {
	Mode                string  `json:"mode"`
	State               string  `json:"state"`
	Relists             int     `json:"relists"`
	Sweeps              int     `json:"sweeps"`
	Inspections         int     `json:"inspections"`
	Reconnects          int     `json:"reconnects"`
	RelistPeriodSeconds float64 `json:"relist_period_seconds"`
	Overruled           int     `json:"overruled"`
	Regressions         int     `json:"regressions"`
}

// EventsResult counts events on their way from the runtime to Watch.
type EventsResult struct {
	// RuntimeEmitted is nil on a real runtime, which does not tell.
	RuntimeEmitted *int `json:"runtime_emitted"`
	Received       int  `json:"received"`
	Stale          int  `json:"stale"`
	Replayed       int  `json:"replayed"`
	Lifecycle      int  `json:"lifecycle"`
	PodSyncs       int  `json:"pod_syncs"`
	Missed         int  `json:"missed"`
	Owed           int  `json:"owed"`
	Duplicates     int  `json:"duplicates"`
	OutOfOrder     int  `json:"out_of_order"`
	// Changes is the number of deliverable changes during the load; Unseen of them were never
	// delivered, Undelivered of these belong to a container or sandbox with an earlier event.
	Changes     int `json:"changes"`
	Unseen      int `json:"unseen"`
	Undelivered int `json:"undelivered"`
}

// LatencyResult sums up durations, in seconds.
type LatencyResult struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// FreshnessResult sums up the reads of the pod workers.
type FreshnessResult struct {
	LatencyResult
	// StaleReads returned less than the caller knew, Errors returned an error.
	StaleReads int `json:"stale_reads"`
	Errors     int `json:"errors"`
}

// ConsistencyResult compares the cache with the runtime after the load.
type ConsistencyResult struct {
	CheckedPods int `json:"checked_pods"`
	// Mismatches are the pods that differ after another relist, BeforeRelist those that differed
	// before.
	Mismatches   int      `json:"mismatches"`
	BeforeRelist int      `json:"before_relist"`
	Differences  []string `json:"differences"`
}

// CostResult is the cost of the measured part of the run.
type CostResult struct {
	PLEGCPUSeconds float64 `json:"pleg_cpu_seconds"`
	// RuntimeCPUSeconds is the runtime's CPU time for all its clients, nil if unknown.
	RuntimeCPUSeconds *float64       `json:"runtime_cpu_seconds"`
	PLEGMaxRSSBytes   int64          `json:"pleg_max_rss_bytes"`
	RPCs              map[string]int `json:"rpcs"`
	// Relists and Inspections are those of the measured part alone.
	Relists     int `json:"relists"`
	Inspections int `json:"inspections"`
}

// OutageResult describes a restart of the runtime in the middle of the run, which its containers
// survive. Times count from its begin.
type OutageResult struct {
	AtSeconds float64 `json:"at_seconds"`
	// DownSeconds is the time without a listener; ReconnectedSeconds the time until the stream was
	// connected again, 0 if never; RelistedSeconds the time until the cache covered the whole
	// runtime again.
	DownSeconds        float64 `json:"down_seconds"`
	ReconnectedSeconds float64 `json:"reconnected_seconds"`
	RelistedSeconds    float64 `json:"relisted_seconds"`
	// Latency is the latency of changes during the outage, which the run's latency leaves out.
	Latency LatencyResult `json:"latency_seconds"`
}

// ComparisonResult is the result of a generator: of the generator under test, or of the generator
// beside it.
type ComparisonResult struct {
	PLEG    PLEGResult    `json:"pleg"`
	Events  EventsResult  `json:"events"`
	Latency LatencyResult `json:"latency_seconds"`
	// EventLatency is the time from the runtime's stamp of an event to the delivery of its first
	// report.
	EventLatency LatencyResult     `json:"event_latency_seconds"`
	Freshness    FreshnessResult   `json:"freshness_seconds"`
	Consistency  ConsistencyResult `json:"consistency"`
	Cost         CostResult        `json:"cost"`
}

// Worst takes over the larger quantiles of another result, and adds its count.
func (l *LatencyResult) Worst(other LatencyResult) {
	l.Count += other.Count
	l.P50, l.P90, l.P99, l.Max = max(l.P50, other.P50), max(l.P90, other.P90), max(l.P99, other.P99), max(l.Max, other.Max)
}

// Seconds turns quantiles into a result.
func (q Quantiles) Seconds() LatencyResult {
	return LatencyResult{Count: q.Count, P50: q.P50.Seconds(), P90: q.P90.Seconds(), P99: q.P99.Seconds(), Max: q.Max.Seconds()}
}

// Judge fills in OK and Failures. A stale read counts unless the runtime's reads lied on purpose.
// Where nothing was checked there is no verdict, and neither where a stranger came.
func (r *Result) Judge(readsLie bool) {
	r.Failures, r.NoVerdict = []string{}, []string{}
	fail := func(n int, format string) {
		if n != 0 {
			r.Failures = append(r.Failures, fmt.Sprintf(format, n))
		}
	}
	none := func(format string, args ...any) { r.NoVerdict = append(r.NoVerdict, fmt.Sprintf(format, args...)) }
	fail(r.Consistency.Mismatches, "%d pods differ between the cache and the runtime")
	fail(r.Events.Duplicates, "%d events were delivered twice")
	fail(r.Events.OutOfOrder, "%d events were delivered out of order")
	if !r.Interrupted {
		fail(r.Events.Undelivered, "%d changes were never told of, neither as an event nor as a PodSync")
	}
	if !readsLie {
		fail(r.Freshness.StaleReads, "%d reads returned less than the caller knew")
	}
	switch {
	case r.Interrupted:
		none("the run was interrupted before the cache was compared with the runtime")
	case r.Consistency.CheckedPods == 0:
		none("the runtime has no pod in the end, so that nothing was compared")
	case r.Load.Changes == 0 && r.Load.Broken > 0:
		none("every action of the load failed, so that nothing was checked")
	}
	if len(r.Strangers) > 0 {
		none("pods that pleg-bench has not made came during the run (%s): a kubelet there disturbs the load, and is disturbed", Few(r.Strangers))
	}
	r.Failures = append(r.Failures, r.NoVerdict...)
	r.OK = len(r.Failures) == 0
}

// Few names the first few.
func Few(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
