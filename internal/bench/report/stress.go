// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// StressSchema names the form of a stress test's result.json.
const StressSchema = "pleg-bench/stress-report/v1"

// Stress is a stress test with all that is kept of it.
type Stress struct {
	Schema  string              `json:"schema"`
	Began   time.Time           `json:"began"`
	Command []string            `json:"command"`
	Result  *bench.StressResult `json:"result"`
	// Latency is that of each step, in a form that merges.
	Latency  []*bench.Histogram `json:"latency_histograms"`
	Failures []string           `json:"expectations_failed"`

	expectations []Expectation
}

// NewStress returns what is to be kept of a stress test, judged by expectations.
func NewStress(began time.Time, command []string, result *bench.StressResult, expectations []Expectation) *Stress {
	s := &Stress{
		Schema: StressSchema, Began: began.UTC(), Command: command, Result: result, Latency: []*bench.Histogram{},
		Failures: append([]string{}, Failures(expectations, result)...), expectations: expectations,
	}
	for _, step := range result.Steps {
		h := step.Histogram
		if h == nil {
			h = new(bench.Histogram)
		}
		s.Latency = append(s.Latency, h)
	}
	return s
}

// Write writes every file into the folder, which it makes if there is none.
func (s *Stress) Write(dir string) error {
	suite := NewJUnit("pleg-bench stress", s.Began, "the cache equals the runtime; nothing was told twice or out of order",
		s.wrong(), s.expectations, s.Result)
	return Files{
		resultFile: JSON(s), stepsFile: s.writeCSV, benchstatFile: s.writeBenchstat, junitFile: suite.Write, pageFile: s.WritePage,
	}.Write(dir)
}

// wrong says why the result is not good.
func (s *Stress) wrong() (list []string) {
	r := s.Result
	note := func(n int, format string) {
		if n != 0 {
			list = append(list, fmt.Sprintf(format, n))
		}
	}
	note(r.Mismatches, "%d pods differ between the cache and the runtime")
	note(r.Duplicates, "%d events were delivered twice")
	note(r.OutOfOrder, "%d events were delivered out of order")
	if r.End == bench.EndInterrupted {
		list = append(list, "the test was interrupted before the cache was compared with the runtime")
	}
	return list
}

func (s *Stress) writeCSV(w io.Writer) error {
	table := csv.NewWriter(w)
	_ = table.Write([]string{"rate", "achieved", "under_way", "events", "late", "p50_seconds", "p90_seconds", "p99_seconds", "max_seconds", "pleg_cpu"}) // Flush keeps errors
	for _, step := range s.Result.Steps {
		l := step.Latency
		_ = table.Write([]string{
			Number(step.Rate), Number(step.Achieved), strconv.Itoa(step.UnderWay), fmt.Sprint(step.Events), fmt.Sprint(step.Late),
			Number(l.P50), Number(l.P90), Number(l.P99), Number(l.Max), Number(step.PLEGCPU),
		})
	}
	table.Flush()
	return table.Error()
}

// writeBenchstat writes a line for each step in the form of Go's benchmarks, and one for the knee.
func (s *Stress) writeBenchstat(w io.Writer) error {
	r := s.Result
	var b strings.Builder
	fmt.Fprintf(&b, "runtime: %s %s\n", r.Runtime.Name, r.Runtime.Version)
	for _, step := range r.Steps {
		fmt.Fprintf(&b, "BenchmarkStress/rate=%.4g 1 %g achieved/s %g p50-sec %g p99-sec %g cpu-cores %d events %d late\n",
			step.Rate, step.Achieved, step.Latency.P50, step.Latency.P99, step.PLEGCPU, step.Events, step.Late)
	}
	fmt.Fprintf(&b, "BenchmarkStressKnee 1 %g achieved/s %g p99-sec %d rss-bytes\n", r.KneeRate, r.KneeP99Seconds, r.PLEGMaxRSSBytes)
	_, err := io.WriteString(w, b.String())
	return err
}

// WritePage writes the test as a page.
func (s *Stress) WritePage(w io.Writer) error {
	r := s.Result
	p := Page{
		Title:    "pleg-bench stress on " + r.Runtime.Name + " " + r.Runtime.Version,
		Subtitle: fmt.Sprintf("%s UTC · %d steps · %d container events", s.Began.Format("2006-01-02 15:04"), len(r.Steps), r.Events),
		Command:  strings.Join(s.Command, " "), Tone: Bad,
		Verdict: fmt.Sprintf("%s: %s. The most that was achieved: %.3g containers/s, with a p99 of %s there.", r.End, r.Why(), r.KneeRate, short(r.KneeP99Seconds)),
		Notes:   slices.Concat(s.wrong(), s.Failures),
	}
	if r.OK && len(s.Failures) == 0 {
		p.Tone = Good
	}
	if n := r.Runtime.Profile; n != "" {
		p.Subtitle = "fake runtime as " + n + " · " + p.Subtitle
	}
	if r.GivenUp > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the runtime did not finish %d containers in 20 s after the last step: they were given up and removed", r.GivenUp))
	}
	p.Tables = []Table{s.table()}
	p.Cards = []Table{{Title: "In all", Rows: []Row{
		{Name: "Events of a second or more", Cells: Cells(fmt.Sprint(r.Late))},
		{Name: "Events missed by the stream", Cells: Cells(fmt.Sprint(r.Missed))},
		{Name: "Events that found Watch full", Cells: Cells(fmt.Sprint(r.Owed))},
		{Name: "Delivered twice", Cells: Cells(fmt.Sprint(r.Duplicates))},
		{Name: "Delivered out of order", Cells: Cells(fmt.Sprint(r.OutOfOrder))},
		{Name: "Pods that differ at the end", Cells: Cells(fmt.Sprint(r.Mismatches))},
		{Name: "Memory, max", Cells: Cells(bench.Bytes(uint64(r.PLEGMaxRSSBytes)))},
	}}}
	p.Charts = s.charts()
	return p.Write(w)
}

func (s *Stress) table() Table {
	t := Table{Columns: []string{"achieved", "under way", "events", "≥ 1 s", "p50", "p99", "CPU"}}
	for _, step := range s.Result.Steps {
		t.Rows = append(t.Rows, Row{Name: fmt.Sprintf("%.3g/s", step.Rate), Cells: Cells(fmt.Sprintf("%.3g/s", step.Achieved), fmt.Sprint(step.UnderWay),
			fmt.Sprint(step.Events), fmt.Sprint(step.Late), short(step.Latency.P50), short(step.Latency.P99), fmt.Sprintf("%.2f", step.PLEGCPU))})
	}
	return t
}

// charts are the pictures of the test, over the rate that was asked for.
func (s *Stress) charts() []Chart {
	over := func(id, title, unit string, lines map[string]func(bench.StressStep) float64, order ...string) Chart {
		c := Chart{ID: id, Title: title, Unit: unit, XLog: true, XTitle: "containers asked for, /s (log scale)"}
		for _, name := range order {
			l := Line{Name: name}
			for _, step := range s.Result.Steps {
				if y := lines[name](step); y > 0 || id != "latency" {
					l.Add(step.Rate, y)
				}
			}
			c.Lines = append(c.Lines, l)
		}
		return c
	}
	type of = map[string]func(bench.StressStep) float64
	list := []Chart{
		over("latency", "From the runtime's stamp to Watch", "s", of{
			"p50": func(x bench.StressStep) float64 { return x.Latency.P50 },
			"p99": func(x bench.StressStep) float64 { return x.Latency.P99 },
			"max": func(x bench.StressStep) float64 { return x.Latency.Max },
		}, "p50", "p99", "max"),
		over("achieved", "Containers that the runtime completed, beside what was asked", "/s", of{
			"achieved": func(x bench.StressStep) float64 { return x.Achieved },
			"asked":    func(x bench.StressStep) float64 { return x.Rate },
		}, "achieved", "asked"),
		over("underway", "Containers begun and not finished", "", of{
			"under way": func(x bench.StressStep) float64 { return float64(x.UnderWay) },
		}, "under way"),
		over("cpu", "CPU of the generator's process", "cores", of{
			"CPU": func(x bench.StressStep) float64 { return x.PLEGCPU },
		}, "CPU"),
	}
	list[0].Log, list[0].Wide = true, true
	for _, step := range s.Result.Steps {
		if step.Achieved == s.Result.KneeRate {
			list[0].Marks = []Mark{{At: step.Rate, Text: fmt.Sprintf("most: %.3g/s", step.Achieved)}}
		}
	}
	return list
}
