// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"
)

// StressSchema names the form of a StressResult's JSON.
const StressSchema = "pleg-bench/stress/v2"

// Ends of a stress test.
const (
	// EndKnee: events took a second or more.
	EndKnee = "knee"
	// EndMaxRate: the largest rate was reached.
	EndMaxRate = "max-rate"
	// EndRuntime: the runtime did not make containers as fast as requested.
	EndRuntime = "runtime-limit"
	// EndInterrupted: the user ended the test.
	EndInterrupted = "interrupted"
	// EndNoEvents: the runtime has no event stream.
	EndNoEvents = "no-events"
	// EndNothing: no container was completed, or no event received.
	EndNothing = "nothing-measured"
)

// StressResult is the outcome of a stress test.
type StressResult struct {
	Schema  string        `json:"schema"`
	OK      bool          `json:"ok"`
	Runtime RuntimeResult `json:"runtime"`
	// End is why the rate was raised no further.
	End string `json:"end"`
	// Events is the number of container events in all
	// (evented_pleg_connection_latency_seconds_count), Late the number of those of a second or more.
	Events uint64 `json:"events"`
	Late   uint64 `json:"late"`
	// KneeRate is the largest achieved rate, in containers a second, KneeP99Seconds the latency
	// there.
	KneeRate       float64 `json:"knee_rate"`
	KneeP99Seconds float64 `json:"knee_p99_seconds"`
	// CheckedPods is the number of pods compared in the end, Mismatches of those that differ between
	// cache and runtime.
	CheckedPods     int   `json:"checked_pods"`
	Mismatches      int   `json:"mismatches"`
	Duplicates      int   `json:"duplicates"`
	OutOfOrder      int   `json:"out_of_order"`
	Missed          int   `json:"missed"`
	Owed            int   `json:"owed"`
	PLEGMaxRSSBytes int64 `json:"pleg_max_rss_bytes"`
	// GivenUp is the number of containers not finished within 20 s of the last step.
	GivenUp int `json:"given_up"`
	// FirstErrors has the first error of each CRI method that failed.
	FirstErrors map[string]string `json:"first_errors"`
	Steps       []StressStep      `json:"steps"`

	// Series is the generator over time, for pages.
	Series []Series `json:"-"`
}

// StressStep is one rate and its outcome.
type StressStep struct {
	// AtSeconds is the begin of the step, from the begin of the test.
	AtSeconds float64 `json:"at_seconds"`
	// Rate is what was asked of the runtime, in containers a second, and Achieved what the runtime
	// completed.
	Rate     float64 `json:"rate"`
	Achieved float64 `json:"achieved"`
	// UnderWay is the number of containers that were begun and not finished at the step's end.
	UnderWay int `json:"under_way"`
	// Events is the number of container events during the step, Late the number of those of a second
	// or more.
	Events uint64 `json:"events"`
	Late   uint64 `json:"late"`
	// Latency is from the runtime's stamp of an event to the delivery on Watch of what the event told
	// first.
	Latency LatencyResult `json:"latency_seconds"`
	// PLEGCPU is the generator's use of CPU, in cores.
	PLEGCPU float64 `json:"pleg_cpu"`
}

// Judge sets the end for a test that measured nothing, and OK.
func (r *StressResult) Judge(streamUnsupported bool) {
	switch {
	case r.End == EndInterrupted:
	case streamUnsupported:
		r.End = EndNoEvents
	case r.Events == 0 || r.KneeRate == 0:
		r.End = EndNothing
	}
	r.OK = r.Mismatches+r.Duplicates+r.OutOfOrder == 0 && r.CheckedPods > 0 && r.End != EndInterrupted && r.End != EndNoEvents && r.End != EndNothing
}

// why says why the rate was raised no further.
func (r *StressResult) why() string {
	return map[string]string{
		EndKnee:        "events began to take a second or more",
		EndMaxRate:     "the largest rate was reached without events of a second or more",
		EndRuntime:     "the runtime makes containers no faster: its events never were the limit",
		EndInterrupted: "the user ended the test; the cache was not compared with the runtime",
		EndNoEvents:    "the runtime offers no events, so that there is nothing to measure",
		EndNothing:     "no container was completed and told by an event, so that nothing was measured",
	}[r.End]
}

// Document implements [Finding].
func (r *StressResult) Document() Document {
	d := Document{Title: r.Runtime.String(), Lines: []string{Count(len(r.Steps), "step")}, Verdict: r.End + ": " + r.why() + ".", Tone: Bad}
	if r.OK {
		d.Tone = Good
	}
	steps := Table{Title: "containers/s", Columns: []string{"achieved", "under way", "events", "≥ 1 s", "p50", "p99", "CPU"}}
	for _, s := range r.Steps {
		steps.Add(fmt.Sprintf("%.3g", s.Rate), "", fmt.Sprintf("%.3g", s.Achieved), fmt.Sprint(s.UnderWay), fmt.Sprint(s.Events), fmt.Sprint(s.Late),
			Seconds(s.Latency.P50), Seconds(s.Latency.P99), fmt.Sprintf("%.2f", s.PLEGCPU))
		d.Marks = append(d.Marks, Mark{At: s.AtSeconds, Text: fmt.Sprintf("%.3g/s", s.Rate)})
	}
	d.Tables = []Table{steps}
	line := func(format string, args ...any) { d.Story = append(d.Story, fmt.Sprintf(format, args...)) }
	if r.KneeRate > 0 {
		line("The most that was achieved: %.3g containers/s, with a p99 of %s there.", r.KneeRate, Seconds(r.KneeP99Seconds))
	}
	line("%d container events, %d late; missed %d, owed %d, delivered twice %d, out of order %d; %d of %d pods differ in the end; memory at most %s",
		r.Events, r.Late, r.Missed, r.Owed, r.Duplicates, r.OutOfOrder, r.Mismatches, r.CheckedPods, Bytes(uint64(r.PLEGMaxRSSBytes)))
	if r.GivenUp > 0 {
		line("the runtime did not finish %s in 20 s after the last step: they were given up and removed", Count(r.GivenUp, "container"))
	}
	for _, method := range sortedKeys(r.FirstErrors) {
		line("%s failed, first: %s", method, r.FirstErrors[method])
	}
	return d
}

// Benchmarks implements [Finding], with a line for each step and one for the best of them.
func (r *StressResult) Benchmarks() (list []Benchmark) {
	for _, s := range r.Steps {
		figures := append([]Figure{{s.Achieved, "achieved/s"}, {s.PLEGCPU, "cpu-cores"}, {float64(s.Events), "events"}, {float64(s.Late), "late"}}, s.Latency.figures("")...)
		list = append(list, Benchmark{fmt.Sprintf("Stress/rate=%.4g", s.Rate), figures})
	}
	if r.KneeRate > 0 {
		list = append(list, Benchmark{"StressKnee", []Figure{{r.KneeRate, "achieved/s"}, {r.KneeP99Seconds, "p99-sec"}, {float64(r.PLEGMaxRSSBytes), "rss-bytes"}}})
	}
	return list
}

// Unmeasured implements [Finding].
func (r *StressResult) Unmeasured() (paths []string) {
	if r.End == EndNoEvents || r.End == EndNothing {
		paths = strings.Fields("events late knee_rate knee_p99_seconds missed duplicates out_of_order")
	}
	if r.CheckedPods == 0 {
		paths = append(paths, "mismatches")
	}
	return paths
}
