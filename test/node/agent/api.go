// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is a node agent for tests: cache, pleg, cri and metrics put
// together as a real agent would, pod workers that wait on the cache as the
// kubelet's do, and an HTTP interface by which a test asks what it believes.
//
// # Model
//
// Beside doing its work the agent watches itself. An observer sees every status
// before it is stored and every event as it is delivered, and notes what must
// never happen: a phase that goes back, an event told twice or out of order, an
// event told before the cache shows it. Workers compare each answer of
// GetNewerThan with what the runtime itself said before the question. Whatever
// they note is a violation, and a test asks for them at its end.
//
// The agent keeps all that it noted, so it is for tests that end.
//
// # Concurrency
//
// Run owns all goroutines. The HTTP handlers run beside the generator and use
// only what is safe for that.
//
// # Errors
//
// New refuses a bad configuration. Afterwards errors of the runtime are the
// generator's business; they end nothing.
package agent

import (
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Paths of the HTTP interface. All answers are JSON, but for metrics.
const (
	PathCache      = "/cache"      // GET: []bench.Pod
	PathEvents     = "/events"     // GET ?since=N: []Event
	PathStats      = "/stats"      // GET: Stats
	PathHealth     = "/healthz"    // GET: 200, or 503 with the reason
	PathMetrics    = "/metrics"    // GET: Prometheus text
	PathNewer      = "/newer"      // GET ?pod=UID: Newer, the answer of GetNewerThan(now)
	PathClock      = "/clock"      // POST ?step=-1h: steps the wall clock by that, from the real one
	PathConsumer   = "/consumer"   // POST ?read=false: stops reading Watch; true: goes on
	PathWorkers    = "/workers"    // POST ?reset=true: forgets what workers measured, not what they found wrong
	PathViolations = "/violations" // GET: []string
)

// An Event is a lifecycle event as it came out of Watch.
type Event struct {
	Seq   int       `json:"seq"`
	Pod   string    `json:"pod"`
	Type  string    `json:"type"`
	ID    string    `json:"id,omitempty"`
	Kind  string    `json:"kind,omitempty"`
	Cause string    `json:"cause,omitempty"`
	Stamp time.Time `json:"stamp,omitzero"` // the runtime's created_at
	Seen  time.Time `json:"seen"`           // when the generator learned of the change
	At    time.Time `json:"at"`             // when it was read from Watch, by the machine's clock
	// FinishedAt is the container's, as the cache had it at that moment.
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// Stats is what the agent knows of itself.
type Stats struct {
	Generator pleg.Stats `json:"generator"`
	// State is Generator.State in words.
	State string `json:"state"`
	// Calls counts CRI calls of the client, by method.
	Calls map[string]uint64 `json:"calls"`
	// Workers is what the pod workers measured.
	Workers WorkerStats `json:"workers"`
	// Events is how many were read from Watch; Violations how many there are.
	Events     int `json:"events"`
	Violations int `json:"violations"`
	Goroutines int `json:"goroutines"`
}

// WorkerStats is what the simulated pod workers measured.
type WorkerStats struct {
	Workers int `json:"workers"` // alive
	// Gets counts answers of GetNewerThan, Checked those that could be compared
	// with the runtime's word, Late those that came with an error.
	Gets    int `json:"gets"`
	Checked int `json:"checked"`
	Late    int `json:"late"`
	// Waits are the times that GetNewerThan took while the runtime answered
	// before and after.
	WaitP50 time.Duration `json:"waitP50"`
	WaitP99 time.Duration `json:"waitP99"`
	WaitMax time.Duration `json:"waitMax"`
}
