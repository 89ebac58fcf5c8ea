// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// StressSchema names the form of a StressResult's JSON.
const StressSchema = "pleg-bench/stress/v2"

// Ends of a stress test.
const (
	// EndKnee: events took more than a second.
	EndKnee = "knee"
	// EndMaxRate: the largest rate was reached.
	EndMaxRate = "max-rate"
	// EndRuntime: the runtime did not make containers as fast as requested.
	EndRuntime = "runtime-limit"
	// EndStood: pleg-bench itself did not run for a while in step after step.
	EndStood = "stood-still"
	// EndInterrupted: the user ended the test.
	EndInterrupted = "interrupted"
	// EndNoEvents: the runtime has no event stream.
	EndNoEvents = "no-events"
	// EndNothing: no container was completed, or no event received.
	EndNothing = "nothing-measured"
	// EndUnfinished: the test ended by an error before its first step.
	EndUnfinished = "unfinished"
)

// StressResult is the outcome of a stress test.
type StressResult struct {
	// Schema is pleg-bench/stress/v2.
	Schema string `json:"schema"`
	// OK is the verdict.
	OK bool `json:"ok"`
	// Runtime names the runtime.
	Runtime RuntimeResult `json:"runtime"`
	// End is why the rate was raised no further: knee, max-rate, runtime-limit, stood-still,
	// interrupted, no-events, nothing-measured or unfinished.
	End string `json:"end"`
	// Unfinished is why the test ended before its first step, or as the runtime had gone; left out
	// otherwise.
	Unfinished string `json:"unfinished,omitempty"`
	// Events is the number of container events (evented_pleg_connection_latency_seconds_count).
	Events uint64 `json:"events"`
	// StoodSeconds is for how long pleg-bench did not run: it was stopped, or had no CPU.
	StoodSeconds float64 `json:"stood_seconds"`
	// Late is the number of events received more than a second after their stamp.
	Late uint64 `json:"late"`
	// LateOnWatch is the number of events with news delivered on Watch more than a second after
	// their stamp: the measure of latency_seconds.
	LateOnWatch uint64 `json:"late_on_watch"`
	// KneeRate is the largest achieved rate, in containers a second.
	KneeRate float64 `json:"knee_rate"`
	// KneeP99Seconds is the p99 of the latency there.
	KneeP99Seconds float64 `json:"knee_p99_seconds"`
	// CheckedPods is the number of pods compared in the end.
	CheckedPods int `json:"checked_pods"`
	// Mismatches is the number of those that differ between cache and runtime.
	Mismatches int `json:"mismatches"`
	// Duplicates is the number of events delivered twice.
	Duplicates int `json:"duplicates"`
	// OutOfOrder is the number of events delivered after an event of a later state.
	OutOfOrder int `json:"out_of_order"`
	// Missed is the number of starts and exits found by a read without an event.
	Missed int `json:"missed"`
	// Owed is the number of events replaced by a PodSync because Watch was full.
	Owed int `json:"owed"`
	// PLEGMaxRSSBytes is the largest resident size of the PLEG's process.
	PLEGMaxRSSBytes int64 `json:"pleg_max_rss_bytes"`
	// GivenUp is the number of containers not finished within 20 s of the last step; the cache is
	// then compared once the runtime rests.
	GivenUp int `json:"given_up"`
	// FirstErrors has the first error of each CRI method that failed.
	FirstErrors map[string]string `json:"first_errors"`
	// Steps are the rates, in order.
	Steps []StressStep `json:"steps"`

	// Series is the generator over time, for pages.
	Series []Series `json:"-"`
}

// StressStep is one rate and its outcome.
type StressStep struct {
	// AtSeconds is the begin of the step, from the begin of the test.
	AtSeconds float64 `json:"at_seconds"`
	// Rate is what was asked of the runtime, in containers a second.
	Rate float64 `json:"rate"`
	// Achieved is what the runtime completed, in containers a second.
	Achieved float64 `json:"achieved"`
	// UnderWay is the number of containers that were begun and not finished at the step's end.
	UnderWay int `json:"under_way"`
	// Events is the number of container events during the step.
	Events uint64 `json:"events"`
	// Late is the number of these received more than a second after their stamp.
	Late uint64 `json:"late"`
	// LateOnWatch is the number of events with news delivered so late during the step.
	LateOnWatch uint64 `json:"late_on_watch"`
	// Latency is the time from the runtime's stamp of an event to the delivery on Watch of what
	// the event told first.
	Latency LatencyResult `json:"latency_seconds"`
	// PLEGCPU is the generator's use of CPU, in cores.
	PLEGCPU float64 `json:"pleg_cpu"`
	// StoodSeconds is for how long pleg-bench did not run. From half a second on, the step proves
	// nothing against the runtime.
	StoodSeconds float64 `json:"stood_seconds"`
}

// StoodFrom is the time, in seconds, without pleg-bench running from which on nothing is held
// against the runtime: an event is late after a second.
const StoodFrom = 0.5

// Stood reports whether pleg-bench did not run for so long in the step that the step proves nothing
// against the runtime.
func (s StressStep) Stood() bool { return s.StoodSeconds >= StoodFrom }

// IsKnee reports whether events were late while pleg-bench ran, in the steps or after them.
// StoodAfter is for how long pleg-bench did not run after the last step, in seconds.
func (r *StressResult) IsKnee(stoodAfter float64) bool {
	_, late, onWatch := r.afterSteps()
	if late+onWatch > 0 && stoodAfter < StoodFrom {
		return true
	}
	return slices.ContainsFunc(r.Steps, func(s StressStep) bool { return s.Late+s.LateOnWatch > 0 && !s.Stood() })
}

// Judge sets the end for a test that measured nothing, and OK.
func (r *StressResult) Judge(streamUnsupported bool) {
	switch {
	case r.End == EndInterrupted || r.End == EndUnfinished:
	case streamUnsupported:
		r.End = EndNoEvents
	case r.Events == 0 || r.KneeRate == 0:
		r.End = EndNothing
	}
	r.OK = r.Mismatches+r.Duplicates+r.OutOfOrder == 0 && r.CheckedPods > 0 && r.End != EndInterrupted &&
		r.End != EndUnfinished &&
		r.End != EndNoEvents &&
		r.End != EndNothing
}

// why says why the rate was raised no further.
func (r *StressResult) why() string {
	while := ""
	if r.StoodSeconds >= StoodFrom {
		while = " while pleg-bench ran"
	}
	return map[string]string{
		EndKnee:        "events began to take more than a second" + r.whenLate(),
		EndMaxRate:     "the largest rate was reached, and no event took more than a second" + while,
		EndRuntime:     "the runtime makes containers no faster: its events never were the limit",
		EndStood:       fmt.Sprintf("pleg-bench itself did not run for %s, again and again: it was stopped, or this machine has too few CPUs", Seconds(r.StoodSeconds)),
		EndInterrupted: "the user ended the test; the cache was not compared with the runtime",
		EndUnfinished:  "the cache was not compared with the runtime: " + r.Unfinished,
		EndNoEvents:    "the runtime offers no events, so that there is nothing to measure",
		EndNothing:     "no container was completed and told by an event, so that nothing was measured",
	}[r.End]
}

// whenLate says that no step had a late event, if so.
func (r *StressResult) whenLate() string {
	for _, s := range r.Steps {
		if s.Late+s.LateOnWatch > 0 {
			return ""
		}
	}
	return " after the last step, as containers under way came to their end"
}

// emptied reports whether there is no verdict because all pods were broken in the end: a call for
// each has failed.
func (r *StressResult) emptied() bool {
	return r.CheckedPods == 0 && !slices.Contains([]string{EndInterrupted, EndUnfinished, EndNoEvents, EndNothing}, r.End)
}

// wrong says what the generator did wrong.
func (r *StressResult) wrong() (list []string) {
	for _, w := range []struct {
		n              int
		one, more, why string
	}{
		{r.Mismatches, "pod differs", "pods differ", " between the cache and the runtime"},
		{r.Duplicates, "event was", "events were", " delivered twice"},
		{r.OutOfOrder, "event was", "events were", " delivered out of order"},
	} {
		if w.n > 0 {
			list = append(list, Count(w.n, w.one, w.more)+w.why)
		}
	}
	return list
}

// afterSteps counts the events that no step has, and the late ones of them: those of containers
// that were under way at the end of the last step.
func (r *StressResult) afterSteps() (events, late, onWatch uint64) {
	events = r.Events
	late = r.Late
	onWatch = r.LateOnWatch
	for _, s := range r.Steps {
		events -= min(events, s.Events)
		late -= min(late, s.Late)
		onWatch -= min(onWatch, s.LateOnWatch)
	}
	return events, late, onWatch
}

// Document implements [Finding].
func (r *StressResult) Document() Document {
	d := Document{
		Title:   r.Runtime.String(),
		Lines:   []string{Count(len(r.Steps), "step")},
		Verdict: r.End + ": " + r.why() + ".",
		Tone:    Bad,
	}
	if r.OK {
		d.Tone = Good
	}
	if wrong := r.wrong(); len(wrong) > 0 {
		d.Verdict = fmt.Sprintf("FAIL: %s (%s).", strings.Join(wrong, "; "), r.End+": "+r.why())
	} else if r.emptied() {
		d.Verdict = fmt.Sprintf("NO VERDICT: calls failed until no pod was left to compare (%s).", r.End+": "+r.why())
	}
	steps := Table{
		Title:   "containers",
		Columns: []string{"achieved", "under way", "events", "late", "on Watch", "p50", "p99", "CPU"},
	}
	for _, s := range r.Steps {
		cells := s.Latency.cells()
		if s.Latency.Count == 0 {
			cells = slices.Repeat([]string{"-"}, len(cells))
		}
		steps.Add(
			fmt.Sprintf("%.3g/s", s.Rate),
			"",
			fmt.Sprintf("%.3g/s", s.Achieved),
			fmt.Sprint(s.UnderWay),
			fmt.Sprint(s.Events),
			fmt.Sprint(s.Late),
			fmt.Sprint(s.LateOnWatch),
			cells[0],
			cells[2],
			fmt.Sprintf("%.0f %%", 100*s.PLEGCPU),
		)
		d.Marks = append(d.Marks, Mark{At: s.AtSeconds, Text: fmt.Sprintf("%.3g/s", s.Rate)})
	}
	if events, late, onWatch := r.afterSteps(); events > 0 {
		steps.Add(
			"after them",
			"",
			"",
			"",
			fmt.Sprint(events),
			fmt.Sprint(late),
			fmt.Sprint(onWatch),
			"",
			"",
			"",
		)
	}
	d.Tables = []Table{steps}
	line := func(format string, args ...any) { d.Story = append(d.Story, fmt.Sprintf(format, args...)) }
	if r.KneeRate > 0 {
		line(
			"The most that was achieved: %.3g containers/s, with a p99 of %s there.",
			r.KneeRate,
			Seconds(r.KneeP99Seconds),
		)
	}
	line(
		"%s, %d late (received more than a second after the stamp), %d late on Watch; missed %d, owed %d, delivered twice %d, out of order %d; %s compared in the end, %d differ; memory at most %s",
		Count(
			int(r.Events),
			"container event",
		),
		r.Late,
		r.LateOnWatch,
		r.Missed,
		r.Owed,
		r.Duplicates,
		r.OutOfOrder,
		Count(r.CheckedPods, "pod"),
		r.Mismatches,
		Bytes(uint64(r.PLEGMaxRSSBytes)),
	)
	if r.StoodSeconds >= StoodFrom {
		line(
			"pleg-bench itself did not run for %s: late events and the rate of these steps are not held against the runtime, and the steps were made again",
			Seconds(r.StoodSeconds),
		)
	}
	if r.GivenUp > 0 {
		line(
			"the runtime did not finish %s in 20 s after the last step: they were given up and removed",
			Count(r.GivenUp, "container"),
		)
	}
	for _, method := range sortedKeys(r.FirstErrors) {
		line("%s failed, first: %s", method, r.FirstErrors[method])
	}
	return d
}

// Benchmarks implements [Finding], with a line for each step and one for the best of them.
func (r *StressResult) Benchmarks() (list []Benchmark) {
	for _, s := range r.Steps {
		figures := append(
			[]Figure{
				{s.Achieved, "achieved/s"},
				{s.PLEGCPU, "cpu-cores"},
				{float64(s.Events), "events"},
				{float64(s.Late), "late"},
				{float64(s.LateOnWatch), "late-on-watch"},
			},
			s.Latency.figures("")...)
		list = append(list, Benchmark{fmt.Sprintf("Stress/rate=%.4g", s.Rate), figures})
	}
	if r.KneeRate > 0 {
		list = append(
			list,
			Benchmark{
				"StressKnee",
				[]Figure{
					{r.KneeRate, "achieved/s"},
					{r.KneeP99Seconds, "p99-sec"},
					{float64(r.PLEGMaxRSSBytes), "rss-bytes"},
				},
			},
		)
	}
	return list
}

// Unmeasured implements [Finding].
func (r *StressResult) Unmeasured() (paths []string) {
	if r.End == EndNoEvents || r.End == EndNothing {
		paths = strings.Fields(
			"events late late_on_watch knee_rate knee_p99_seconds missed duplicates out_of_order",
		)
	}
	if r.CheckedPods == 0 {
		paths = append(paths, "mismatches")
	}
	return paths
}
