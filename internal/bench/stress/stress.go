// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package stress is KEP-3386's stress test: it makes containers that run to completion at a rising rate, until events take a second or more.
//
// # Model
//
// A few pods stay; short containers are created, run, end and are removed in them. The rate grows by a factor each step. After every step the
// generator's own histogram evented_pleg_connection_latency_seconds is read: the knee is the first step with events above its 1-second bucket. A
// step in which the runtime did not make containers at the rate that was asked of it is the end too: the runtime is the limit then, not the
// path of its events.
//
// # Concurrency and errors
//
// As in package run.
package stress

import (
	"time"
)

// Step is one rate and what came of it.
type Step struct {
	// Rate is what was asked of the runtime, in containers a second, and Achieved what it made of it.
	Rate     float64 `json:"rate"`
	Achieved float64 `json:"achieved"`
	// Events is the number of container events received in the step, Late of those that took a second or more.
	Events uint64 `json:"events"`
	Late   uint64 `json:"late"`
	// P50, P99 and Max are from the runtime's stamp to the delivery on Watch, in seconds.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	// CPU is the generator's, in cores.
	CPU float64 `json:"cpu"`
}

// Ends of a stress test.
const (
	// EndKnee: events took a second or more.
	EndKnee = "knee"
	// EndMaxRate: the largest rate was reached.
	EndMaxRate = "max-rate"
	// EndRuntime: the runtime did not make containers fast enough for a higher rate.
	EndRuntime = "runtime-limit"
)

// Result is the outcome of a stress test.
type Result struct {
	Schema  string `json:"schema"`
	Runtime struct {
		Name     string `json:"name"`
		Version  string `json:"version"`
		Endpoint string `json:"endpoint"`
		Profile  string `json:"profile"`
	} `json:"runtime"`
	// End is why it ended.
	End string `json:"end"`
	// Events is the number of container events in all (evented_pleg_connection_latency_seconds_count).
	Events uint64 `json:"events"`
	// KneeRate is the achieved rate of the last step, in containers a second, KneeP99 the latency there, in seconds.
	KneeRate float64 `json:"knee_rate"`
	KneeP99  float64 `json:"knee_p99_seconds"`
	// Mismatches is the number of pods that differ between cache and runtime in the end.
	Mismatches int    `json:"mismatches"`
	Missed     int    `json:"missed"`
	Owed       int    `json:"owed"`
	Steps      []Step `json:"steps"`
}

// Schema names the form of a Result's JSON.
const Schema = "pleg-bench/stress/v1"

// shape is how the rate rises.
type shape struct {
	rate, most, factor float64
	long               time.Duration
}

// next returns the rate after one, and false after the largest.
func (s shape) next(rate float64) (float64, bool) {
	if rate >= s.most {
		return 0, false
	}
	return min(rate*s.factor, s.most), true
}
