// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Modes of a generator.
const (
	// Evented listens to the runtime's stream.
	Evented = "evented"
	// Generic only polls.
	Generic = "generic"
)

// Config is the argument of a worker's first call.
type Config struct {
	// Endpoint is the runtime's socket.
	Endpoint string
	// Mode is Evented or Generic.
	Mode string
	// RelistBase and RelistMax are those of pleg.Config; zero means its defaults.
	RelistBase, RelistMax time.Duration
	// ReadTimeout bounds a read of the runtime, of a pod or of everything; zero means pleg's
	// defaults.
	ReadTimeout time.Duration
	// Seed decides which pods the pod workers ask for.
	Seed uint64
	// MetricsAddr is the address of the metrics; empty for none.
	MetricsAddr string
	// Tail reports the tail of the latency histogram with every Progress.
	Tail bool
}

// News is what a worker has to say since the last News.
type News struct {
	Deliveries []bench.Delivery
	// Progress is nil unless asked for.
	Progress *Progress
}

// Hello is the answer of the first call: the generator runs.
type Hello struct {
	RuntimeName, RuntimeVersion string
	// MetricsAddr is where metrics are served.
	MetricsAddr string
}

// Progress is the worker's report on itself, several times a second.
type Progress struct {
	// At is a bench.Stamp.
	At           int64
	State        string
	Reason       string
	RelistPeriod time.Duration
	// GlobalTime is a bench.Stamp of the cache's global time, 0 before the first relist.
	GlobalTime int64
	Counts     Counts
	// Dirty, Inspecting and Waiters are the present numbers of pods that want a read, of pods that are
	// being read, and of waiting callers.
	Dirty, Inspecting, Waiters int
	// Health is the reason of an unhealthy generator, else empty.
	Health string
	// Heap is the live heap in bytes, CPUSeconds the process's CPU time.
	Heap       uint64
	CPUSeconds float64
	// LatencyCount and LatencyLate are the number of received container events, and of those of a
	// second or more, by the histogram evented_pleg_connection_latency_seconds. Only with
	// Config.Tail.
	LatencyCount, LatencyLate uint64
}

// Counts are the generator's counters.
type Counts struct {
	Relists, Sweeps, Inspections, Reconnects, Claims, StaleClaims, ReplayedClaims, Missed, Owed, Overruled, Regressions, Events int
}

// Report is the worker's usage and counts so far.
type Report struct {
	// At is a bench.Stamp.
	At    int64
	Usage bench.Usage
	// Heap is the live heap in bytes.
	Heap uint64
	// Calls counts calls by CRI method.
	Calls  map[string]uint64
	Counts Counts
	// Waits are the durations of the pod workers' calls, StaleReads the number of those that
	// returned less than the caller knew, ReadErrors the number of failed calls.
	Waits                  []time.Duration
	StaleReads, ReadErrors int
	// Complaints are the first few stale reads, for people.
	Complaints []string
}

// Snapshot is the cache's content, and what Watch delivered before and no News has told.
type Snapshot struct {
	// At is a bench.Stamp.
	At         int64
	Pods       []bench.Pod
	Deliveries []bench.Delivery
}
