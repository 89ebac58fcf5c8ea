// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// Schema names the form of a Result's JSON. It changes when a field changes its meaning or goes;
// new fields do not change it.
const Schema = "pleg-bench/run/v2"

// Result is the outcome of a run. docs/json.md documents the JSON; parts that do not apply are left
// out.
type Result struct {
	// Schema is pleg-bench/run/v2.
	Schema string `json:"schema"`
	// OK is the verdict.
	OK bool `json:"ok"`
	// Failures are the reasons of a bad verdict.
	Failures []string `json:"failures"`
	// Interrupted is true if the run ended before the cache was compared with the runtime: by the
	// user, or as the runtime had gone; never beside ok.
	Interrupted bool `json:"interrupted"`
	// Gone is the reason if the runtime had gone, empty if not.
	Gone string `json:"-"`
	// NoVerdict are those of the failures for which nothing was judged.
	NoVerdict []string `json:"no_verdict"`
	// Runtime names the runtime.
	Runtime RuntimeResult `json:"runtime"`
	// Load is the load on the runtime.
	Load LoadResult `json:"load"`
	// StoodSeconds is for how long pleg-bench did not run while the load ran: it was stopped, or had no
	// CPU. The latencies hold that time, too.
	StoodSeconds float64 `json:"stood_seconds"`
	// Results of the generator under test.
	ComparisonResult
	// Outage is there with --restart-runtime-at only.
	Outage *OutageResult `json:"outage,omitempty"`
	// Comparison is a polling PLEG on the same load at the same time, with --compare only.
	Comparison *ComparisonResult `json:"comparison,omitempty"`

	// Strangers are the pods of others that came to a real runtime while the load ran.
	Strangers []string `json:"strangers"`

	// Series are the generators over time, for pages.
	Series []Series `json:"-"`
}

// Series is one generator, or one stream, over time.
type Series struct {
	// Name is evented, generic or events.
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
	// At is when, in seconds from the begin.
	At float64 `json:"at_seconds"`
	// State is that of the stream: Idle, Opening, Connected, Backoff, Unsupported.
	State string `json:"state"`
	// Lists counts the lists of the whole runtime since the start.
	Lists int `json:"lists"`
	// Reads counts the reads of one pod since the start.
	Reads int `json:"reads"`
	// Received counts the events received since the start.
	Received int `json:"received"`
	// Missed counts the starts and exits without an event since the start, those of times without
	// a stream included.
	Missed int `json:"missed"`
	// Failed counts the failed lists and reads since the start.
	Failed int `json:"failed"`
	// CPUSeconds is the CPU time of the process, 0 without one of its own.
	CPUSeconds float64 `json:"cpu_seconds"`
	// HeapBytes is the heap of the process, 0 without one of its own.
	HeapBytes uint64 `json:"heap_bytes"`
	// PeriodSeconds is the relist period.
	PeriodSeconds float64 `json:"relist_period_seconds"`
}

// RuntimeResult names the runtime of the run.
type RuntimeResult struct {
	// Name is what the runtime says.
	Name string `json:"name"`
	// Version is what the runtime says.
	Version string `json:"version"`
	// Endpoint is the socket.
	Endpoint string `json:"endpoint"`
	// Profile is that of the fake runtime, empty for a real one.
	Profile string `json:"profile"`
}

// LoadResult is the load on the runtime.
type LoadResult struct {
	// Pods is --pods.
	Pods int `json:"pods"`
	// Containers is --containers.
	Containers int `json:"containers"`
	// Rate is --rate.
	Rate float64 `json:"rate"`
	// DurationSeconds is how long the load ran.
	DurationSeconds float64 `json:"duration_seconds"`
	// Seed is --seed.
	Seed uint64 `json:"seed"`
	// Faults are those of --fault, as understood.
	Faults []string `json:"faults"`
	// Changes is the number of state changes made while the load ran.
	Changes int `json:"changes"`
	// AchievedRate is that number a second.
	AchievedRate float64 `json:"achieved_rate"`
	// Broken is the number of actions with a failed call; their pods were replaced.
	Broken int `json:"broken"`
	// Errors counts failed calls by CRI method.
	Errors map[string]int `json:"errors"`
	// FirstErrors has the first error of each of these methods.
	FirstErrors map[string]string `json:"first_errors"`
	// CallSeconds is how long the runtime took for the load's calls.
	CallSeconds LatencyResult `json:"call_seconds"`
}

// PLEGResult is the state and the work of the generator.
type PLEGResult struct {
	// Mode is evented or generic.
	Mode string `json:"mode"`
	// State is that of the stream in the end: Idle, Opening, Connected, Backoff, Unsupported.
	State string `json:"state"`
	// Relists counts lists of the whole runtime.
	Relists int `json:"relists"`
	// Sweeps counts lists for many waiting pods.
	Sweeps int `json:"sweeps"`
	// Inspections counts reads of one pod.
	Inspections int `json:"inspections"`
	// Reconnects counts streams that connected after the first.
	Reconnects int `json:"reconnects"`
	// RelistPeriodSeconds is the relist period in the end.
	RelistPeriodSeconds float64 `json:"relist_period_seconds"`
	// Overruled counts claims refuted by a read.
	Overruled int `json:"overruled"`
	// Regressions counts phases taken back by a later read.
	Regressions int `json:"regressions"`
}

// EventsResult counts events on their way from the runtime to Watch.
type EventsResult struct {
	// RuntimeEmitted is the number of events that the fake runtime sent; null on a real one, which
	// does not tell.
	RuntimeEmitted *int `json:"runtime_emitted"`
	// Received is the number of events received by the PLEG.
	Received int `json:"received"`
	// Stale is the number of events without news.
	Stale int `json:"stale"`
	// Replayed is the number of events stamped before the stream was opened, or in the future.
	Replayed int `json:"replayed"`
	// Lifecycle is the number of events of Watch.
	Lifecycle int `json:"lifecycle"`
	// PodSyncs is the number of PodSyncs among them.
	PodSyncs int `json:"pod_syncs"`
	// Missed is the number of starts and exits found by a read without an event, while the stream
	// was up.
	Missed int `json:"missed"`
	// Owed is the number of events replaced by a PodSync because Watch was full.
	Owed int `json:"owed"`
	// Duplicates is the number of events delivered twice: judged.
	Duplicates int `json:"duplicates"`
	// OutOfOrder is the number of events delivered after an event of a later state: judged.
	OutOfOrder int `json:"out_of_order"`
	// Changes is the number of starts, exits and removals while the load ran.
	Changes int `json:"changes"`
	// Unseen is the number of these without any report.
	Unseen int `json:"unseen"`
	// Undelivered is the number of unseen changes that Watch owes, as an earlier event was
	// delivered: judged.
	Undelivered int `json:"undelivered"`
}

// LatencyResult sums up durations, in seconds.
type LatencyResult struct {
	// Count is the number of durations.
	Count int `json:"count"`
	// P50 is the median, in seconds.
	P50 float64 `json:"p50"`
	// P90 is the 90th percentile, in seconds.
	P90 float64 `json:"p90"`
	// P99 is the 99th percentile, in seconds.
	P99 float64 `json:"p99"`
	// Max is the longest, in seconds.
	Max float64 `json:"max"`
}

// FreshnessResult sums up the reads of the pod workers.
type FreshnessResult struct {
	LatencyResult
	// StaleReads is the number of answers behind what the load knew: judged.
	StaleReads int `json:"stale_reads"`
	// Errors is the number of answers that came with the error of a failed read.
	Errors int `json:"errors"`
}

// ConsistencyResult compares the cache with the runtime after the load.
type ConsistencyResult struct {
	// CheckedPods is the number of pods that the runtime had in the end.
	CheckedPods int `json:"checked_pods"`
	// Mismatches is the number of pods that differ after another relist: judged.
	Mismatches int `json:"mismatches"`
	// BeforeRelist is the number of pods that differed before.
	BeforeRelist int `json:"before_relist"`
	// Differences are the first few differences and violations.
	Differences []string `json:"differences"`
}

// CostResult is the cost of the measured part of the run.
type CostResult struct {
	// PLEGCPUSeconds is the CPU time of the PLEG's process while the load ran.
	PLEGCPUSeconds float64 `json:"pleg_cpu_seconds"`
	// RuntimeCPUSeconds is the CPU time of the runtime's process meanwhile, for the load and all
	// PLEGs; null if unknown: of a real one it is known on Linux only.
	RuntimeCPUSeconds *float64 `json:"runtime_cpu_seconds"`
	// PLEGMaxRSSBytes is the largest resident size of the PLEG's process.
	PLEGMaxRSSBytes int64 `json:"pleg_max_rss_bytes"`
	// RPCs counts the PLEG's calls by CRI method while the load ran.
	RPCs map[string]int `json:"rpcs"`
	// Relists counts lists of the whole runtime while the load ran.
	Relists int `json:"relists"`
	// Inspections counts reads of one pod while the load ran.
	Inspections int `json:"inspections"`
}

// OutageResult describes a restart of the runtime in the middle of the run, which its containers
// survive. Times count from its begin.
type OutageResult struct {
	// AtSeconds is when the runtime was restarted, from the begin of the load; the times below
	// count from then.
	AtSeconds float64 `json:"at_seconds"`
	// DownSeconds is how long nothing answered.
	DownSeconds float64 `json:"down_seconds"`
	// ReconnectedSeconds is the time until the stream was connected again, 0 if never.
	ReconnectedSeconds float64 `json:"reconnected_seconds"`
	// RelistedSeconds is the time until the cache covered the whole runtime again, 0 if never.
	RelistedSeconds float64 `json:"relisted_seconds"`
	// Latency is the latency of changes during the outage, which the run's latency leaves out.
	Latency LatencyResult `json:"latency_seconds"`
}

// ComparisonResult is the result of a generator: of the generator under test, or of the generator
// beside it.
type ComparisonResult struct {
	// PLEG is the state and the work of the generator.
	PLEG PLEGResult `json:"pleg"`
	// Events counts events on their way from the runtime to Watch.
	Events EventsResult `json:"events"`
	// Latency is the time from the change in the runtime to the delivery on Watch.
	Latency LatencyResult `json:"latency_seconds"`
	// EventLatency is the time from the runtime's stamp of an event to the delivery of its first
	// report.
	EventLatency LatencyResult `json:"event_latency_seconds"`
	// Freshness is how long GetNewerThan(now) took.
	Freshness FreshnessResult `json:"freshness_seconds"`
	// Consistency compares the cache with the runtime after the load.
	Consistency ConsistencyResult `json:"consistency"`
	// Cost is the cost while the load ran.
	Cost CostResult `json:"cost"`
}

// Worst takes over the larger quantiles of another result, and adds its count.
func (l *LatencyResult) Worst(other LatencyResult) {
	l.Count += other.Count
	l.P50 = max(l.P50, other.P50)
	l.P90 = max(l.P90, other.P90)
	l.P99 = max(l.P99, other.P99)
	l.Max = max(l.Max, other.Max)
}

// Seconds turns quantiles into a result.
func (q Quantiles) Seconds() LatencyResult {
	return LatencyResult{
		Count: q.Count,
		P50:   q.P50.Seconds(),
		P90:   q.P90.Seconds(),
		P99:   q.P99.Seconds(),
		Max:   q.Max.Seconds(),
	}
}

// Judge fills in OK and Failures. A stale read counts unless the runtime's reads lied on purpose.
// Where nothing was checked there is no verdict, and neither where a stranger came.
func (r *Result) Judge(readsLie bool) {
	r.Failures = []string{}
	r.NoVerdict = []string{}
	fail := func(n int, one, more, why string) {
		if n != 0 {
			r.Failures = append(r.Failures, Count(n, one, more)+why)
		}
	}
	none := func(format string, args ...any) { r.NoVerdict = append(r.NoVerdict, fmt.Sprintf(format, args...)) }
	fail(r.Consistency.Mismatches, "pod differs", "pods differ", " between the cache and the runtime")
	fail(r.Events.Duplicates, "event was", "events were", " delivered twice")
	fail(r.Events.OutOfOrder, "event was", "events were", " delivered out of order")
	if !r.Interrupted {
		fail(
			r.Events.Undelivered,
			"change was",
			"changes were",
			" never told of, neither as an event nor as a PodSync",
		)
	}
	if !readsLie {
		fail(r.Freshness.StaleReads, "read", "reads", " returned less than the caller knew")
	}
	switch {
	case r.Gone != "":
		none("the cache was not compared with the runtime: %s", r.Gone)
	case r.Interrupted:
		none("the run was interrupted before the cache was compared with the runtime")
	case r.Consistency.CheckedPods == 0:
		none("the runtime has no pod in the end, so that nothing was compared")
	case r.Load.Changes == 0 && r.Load.Broken > 0:
		none("every action of the load failed, so that nothing was checked")
	}
	if len(r.Strangers) > 0 {
		none(
			"pods that pleg-bench has not made came during the run (%s): a kubelet there disturbs the load, and is disturbed",
			Few(r.Strangers),
		)
	}
	r.Failures = append(r.Failures, r.NoVerdict...)
	r.OK = len(r.Failures) == 0
}

// Few names the first few.
func Few(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(printable.Texts(names[:most]), ", ") + ", …"
	}
	return strings.Join(printable.Texts(names), ", ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
