// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"strings"
)

// StressSchema names the form of a StressResult's JSON.
const StressSchema = "pleg-bench/stress/v1"

// Ends of a stress test.
const (
	// EndKnee: events took a second or more.
	EndKnee = "knee"
	// EndMaxRate: the largest rate was reached.
	EndMaxRate = "max-rate"
	// EndRuntime: the runtime did not make containers as fast as was asked of it.
	EndRuntime = "runtime-limit"
	// EndInterrupted: the user ended the test.
	EndInterrupted = "interrupted"
)

// StressResult is the outcome of a stress test.
type StressResult struct {
	Schema  string        `json:"schema"`
	OK      bool          `json:"ok"`
	Runtime RuntimeResult `json:"runtime"`
	// End is why the rate was raised no further.
	End string `json:"end"`
	// Events is the number of container events in all (evented_pleg_connection_latency_seconds_count), Late of those that took a second or more.
	Events uint64 `json:"events"`
	Late   uint64 `json:"late"`
	// KneeRate is the most that a step achieved, in containers a second, KneeP99Seconds the latency there.
	KneeRate       float64 `json:"knee_rate"`
	KneeP99Seconds float64 `json:"knee_p99_seconds"`
	// Mismatches is the number of pods that differ between cache and runtime in the end.
	Mismatches      int   `json:"mismatches"`
	Duplicates      int   `json:"duplicates"`
	OutOfOrder      int   `json:"out_of_order"`
	Missed          int   `json:"missed"`
	Owed            int   `json:"owed"`
	PLEGMaxRSSBytes int64 `json:"pleg_max_rss_bytes"`
	// GivenUp is the number of containers that the runtime did not finish within 20 s after the last step.
	GivenUp int          `json:"given_up"`
	Steps   []StressStep `json:"steps"`
}

// StressStep is one rate and what came of it.
type StressStep struct {
	// Rate is what was asked of the runtime, in containers a second, and Achieved what it made of it.
	Rate     float64 `json:"rate"`
	Achieved float64 `json:"achieved"`
	// UnderWay is the number of containers that were begun and not finished at its end.
	UnderWay int `json:"under_way"`
	// Events is the number of container events received during the step, Late of those that took a second or more.
	Events uint64 `json:"events"`
	Late   uint64 `json:"late"`
	// Latency is from the runtime's stamp of an event to the delivery on Watch of what it told first.
	Latency LatencyResult `json:"latency_seconds"`
	// PLEGCPU is the generator's use of CPU, in cores.
	PLEGCPU float64 `json:"pleg_cpu"`

	// Histogram is of the latencies.
	Histogram *Histogram `json:"-"`
}

// Why says in words why the rate was raised no further.
func (r *StressResult) Why() string {
	return map[string]string{
		EndKnee:        "events began to take a second or more",
		EndMaxRate:     "the largest rate was reached without events of a second or more",
		EndRuntime:     "the runtime makes containers no faster: its events never were the limit",
		EndInterrupted: "the user ended the test; the cache was not compared with the runtime",
	}[r.End]
}

// WriteText writes the result for people.
func (r *StressResult) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n\n%12s %9s %9s %7s %7s %9s %9s %6s\n", r.Runtime.Name, r.Runtime.Version,
		"containers/s", "achieved", "under way", "events", ">= 1 s", "p50", "p99", "CPU")
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%12.3g %9.3g %9d %7d %7d %9s %9s %6.2f\n", s.Rate, s.Achieved, s.UnderWay, s.Events, s.Late,
			Short(seconds(s.Latency.P50)), Short(seconds(s.Latency.P99)), s.PLEGCPU)
	}
	line := func(format string, args ...any) { b.WriteString(Fold(fmt.Sprintf(format, args...), 2) + "\n") }
	b.WriteString("\n")
	line("%s: %s.", r.End, r.Why())
	line("The most that was achieved: %.3g containers/s, with a p99 of %s there.", r.KneeRate, Short(seconds(r.KneeP99Seconds)))
	line("%d container events, %d late; missed %d, owed %d, delivered twice %d, out of order %d; %d pods differ in the end; memory at most %s",
		r.Events, r.Late, r.Missed, r.Owed, r.Duplicates, r.OutOfOrder, r.Mismatches, Bytes(uint64(r.PLEGMaxRSSBytes)))
	if r.GivenUp > 0 {
		line("the runtime did not finish %d containers in 20 s after the last step: they were given up and removed", r.GivenUp)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
