// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// Status is where a run is.
type Status struct {
	// Phase is the present phase of the run.
	Phase string
	// Elapsed of Total is how far the load is, 0 of 0 in other phases.
	Elapsed, Total time.Duration
	// Changes is the number of changes of the load, Behind its delay.
	Changes int
	Behind  time.Duration
	// Sides are the generators, the generator under test first.
	Sides []SideStatus
}

// SideStatus is how a generator is doing.
type SideStatus struct {
	Mode     string
	Progress worker.Progress
	// Latency is the latency of the changes of the last few seconds.
	Latency bench.Quantiles
}
