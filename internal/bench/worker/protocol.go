// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
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
	// ReconnectBase and the others are those of pleg.Config, likewise.
	ReconnectBase, ReconnectMax, ReconnectSteady, StableAfter time.Duration
	Capacity                                                  int
	// ReadTimeout bounds a read of the runtime, of a pod or of everything; zero means pleg's
	// defaults.
	ReadTimeout time.Duration
	// Seed decides which pods the pod workers ask for.
	Seed uint64
	// MetricsAddr is the address of the metrics; empty for none.
	MetricsAddr string
	// Truth is a socket of the runtime for pod workers that compare each answer with the runtime's
	// own lists. Empty: they compare with the facts.
	Truth string
	// Check has every status and event checked, and the violations reported as complaints.
	Check bool
}

// Hello is the answer of the first call: the generator runs.
type Hello struct {
	RuntimeName, RuntimeVersion string
	// MetricsAddr is where metrics are served.
	MetricsAddr string
}

// News is the worker's state, and the deliveries of Watch since the last News.
type News struct {
	Deliveries []bench.Delivery
	Progress   Progress
}

// Progress is the worker's report on itself.
type Progress struct {
	// At is a bench.Stamp.
	At int64
	pleg.Stats
	// Covered is a bench.Stamp of the cache's global time, 0 before the first relist.
	Covered int64
	// Stood is for how long the worker's process did not run, of all its time.
	Stood time.Duration
	// Health is the reason of an unhealthy generator, else empty.
	Health string
	Usage  bench.Usage
	// Heap is the live heap in bytes.
	Heap uint64
}

// Report is the worker's news and its account of the whole run.
type Report struct {
	News
	// Calls counts calls by CRI method.
	Calls map[string]uint64
	// Waits are the durations of the pod workers' calls, StaleReads the number of those that
	// returned less than the caller knew, ReadErrors the number of failed calls. With Config.Check,
	// violations count as stale reads.
	Waits                  []time.Duration
	StaleReads, ReadErrors int
	// Complaints are the first few stale reads, for people.
	Complaints []string
}

// Tail is the number of received container events, and of those of more than a second, by the
// histogram of the latency.
type Tail struct{ Count, Late uint64 }

// Metrics of the generator, by which KEP-3386 measures stress and loss.
const (
	MetricLatency = "kubelet_evented_pleg_connection_latency_seconds"
	MetricMissed  = "kube_pod_missed_events"
)

// Newer is the answer of GetNewerThan for the present moment.
type Newer struct {
	Pod  bench.Pod
	Took time.Duration
}

// Snapshot is the cache's content, and what Watch delivered before.
type Snapshot struct {
	News
	Pods []bench.Pod
}
