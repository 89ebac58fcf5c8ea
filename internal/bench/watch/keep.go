// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
)

// KeepSchema names the form of a watch's result.json.
const KeepSchema = "pleg-bench/watch-report/v1"

// ErrExpectation is returned by [Run] if a bound was not kept.
var ErrExpectation = errors.New("watch: an expectation was not kept")

// BlankSummary is a summary with all its optional parts, for [report.ParseExpectations].
func BlankSummary() *Summary {
	return &Summary{Stream: new(stream.Report), Verdict: new(stream.Verdict)}
}

// Keep says where to keep what a watch found, and what to expect of it.
type Keep struct {
	// Dir is a folder; empty keeps nothing.
	Dir     string
	Command []string
	Expect  []report.Expectation
}

// Kept is a watch with all that is kept of it.
type Kept struct {
	Schema   string    `json:"schema"`
	Began    time.Time `json:"began"`
	Command  []string  `json:"command"`
	Summary  Summary   `json:"summary"`
	Samples  []Sample  `json:"samples"`
	Failures []string  `json:"expectations_failed"`
	// EventsKept is every how manyth event is in events.csv.
	EventsKept int `json:"one_event_of"`

	events []stream.Event
	expect []report.Expectation
}

// kept returns what is to be kept of a watch that has ended.
func (p *printer) kept(s Summary) *Kept {
	t := p.tap
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Kept{
		Schema: KeepSchema, Began: t.track.begun.UTC(), Command: p.options.Keep.Command, Summary: s, Samples: append([]Sample{}, t.track.samples.list...),
		Failures: append([]string{}, report.Failures(p.options.Keep.Expect, s)...), EventsKept: max(t.track.events.every, 1),
		events: t.track.events.list, expect: p.options.Keep.Expect,
	}
}

// keep writes what was found, and says which bounds were not kept.
func (p *printer) keep(s Summary) error {
	k := p.kept(s)
	var err error
	if p.options.Keep.Dir != "" {
		err = k.Write(p.options.Keep.Dir)
	}
	if len(k.Failures) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %s", ErrExpectation, strings.Join(k.Failures, "; ")))
	}
	return err
}

// Write writes every file into the folder, which it makes if there is none.
func (k *Kept) Write(dir string) error {
	var failures []string
	if k.Summary.Lists == 0 {
		failures = []string{"no list of the runtime succeeded"}
	}
	suite := report.NewJUnit("pleg-bench watch", k.Began, "the runtime could be listed", failures, k.expect, k.Summary)
	return report.Files{
		"result.json": report.JSON(k), "events.csv": k.writeCSV, "benchstat.txt": k.writeBenchstat, "junit.xml": suite.Write, "report.html": k.WritePage,
	}.Write(dir)
}

func (k *Kept) writeCSV(w io.Writer) error {
	table := csv.NewWriter(w)
	_ = table.Write([]string{"at_seconds", "event", "kind", "namespace", "pod", "id", "age_seconds", "bytes", "flaws"}) // Flush keeps errors
	for _, e := range k.events {
		age := ""
		if e.AgeSeconds != nil {
			age = report.Number(*e.AgeSeconds)
		}
		_ = table.Write([]string{
			report.Number(e.Received.Sub(k.Began).Seconds()), e.Type, e.Kind, e.Namespace, e.Pod, e.ID, age, strconv.Itoa(e.Bytes), strings.Join(e.Flaws, "; "),
		})
	}
	table.Flush()
	return table.Error()
}

// writeBenchstat writes a line in the form of Go's benchmarks.
func (k *Kept) writeBenchstat(w io.Writer) error {
	s := k.Summary
	_, err := fmt.Fprintf(w, "runtime: %s\nBenchmarkWatch 1 %g list-p50-sec %g list-p99-sec %g read-p50-sec %g read-p99-sec %d missed", s.Runtime,
		s.ListSeconds.P50, s.ListSeconds.P99, s.ReadSeconds.P50, s.ReadSeconds.P99, s.Missed)
	if err == nil && s.Stream != nil {
		d := s.Stream.Delays[stream.AllKinds]
		_, err = fmt.Fprintf(w, " %g delay-p50-sec %g delay-p99-sec %d received", d.P50, d.P99, s.Stream.Received)
	}
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

// WritePage writes the watch as a page.
func (k *Kept) WritePage(w io.Writer) error {
	s := k.Summary
	p := report.Page{
		Title: "pleg-bench watch of " + s.Runtime, Command: strings.Join(k.Command, " "),
		Subtitle: fmt.Sprintf("%s UTC · for %s", k.Began.Format("2006-01-02 15:04"), short(s.Seconds)),
		Notes:    k.Failures, Tables: []report.Table{k.table()},
	}
	if v := s.Verdict; v != nil {
		p.Verdict, p.Tone = string(v.Worth)+": "+v.Summary, tone(v.Worth)
		if v.Period != "" {
			p.Notes = append([]string{"relist period: " + v.Period}, p.Notes...)
		}
		p.Tables = append(k.told(v.Maintainers), p.Tables...)
	}
	if len(k.Failures) > 0 {
		p.Tone = report.Bad
	}
	var at []float64
	var states []string
	for _, x := range k.Samples {
		at, states = append(at, x.At), append(states, x.State)
	}
	if len(at) > 0 {
		p.Bands = []report.Band{report.NewBand("", at, states, s.Seconds)}
	}
	p.Charts = k.charts()
	p.Cards = k.cards()
	return p.Write(w)
}

// tone is how a worth is shown.
func tone(w stream.Worth) string {
	switch w {
	case stream.WorthFull:
		return report.Good
	case stream.WorthNone, stream.WorthPartial, stream.WorthUnknown:
		return report.Bad
	}
	return ""
}

// told is what to tell those who maintain the runtime.
func (k *Kept) told(list []string) []report.Table {
	if len(list) == 0 {
		return nil
	}
	t := report.Table{Title: "For those who maintain the runtime", Words: true}
	for _, m := range list {
		t.Rows = append(t.Rows, report.Row{Name: m})
	}
	return []report.Table{t}
}

// table is the summary.
func (k *Kept) table() report.Table {
	s := k.Summary
	t := report.Table{Title: "What was found", Words: true}
	row := func(name, format string, args ...any) {
		t.Rows = append(t.Rows, report.Row{Name: name, Cells: report.Cells(fmt.Sprintf(format, args...))})
	}
	for _, l := range s.lines() {
		row(l[0], "%s", l[1])
	}
	return t
}

// cards are the tables below the pictures.
func (k *Kept) cards() (list []report.Table) {
	calls, most := report.Table{Title: "Calls by kind"}, uint64(1)
	for _, n := range k.Summary.Calls {
		most = max(most, n)
	}
	for _, name := range slices.Sorted(maps.Keys(k.Summary.Calls)) {
		n := k.Summary.Calls[name]
		calls.Rows = append(calls.Rows, report.Row{Name: name, Cells: []report.Cell{{Text: fmt.Sprint(n), Share: 100 * float64(n) / float64(most)}}})
	}
	if r := k.Summary.Stream; r != nil && r.Delays[stream.AllKinds].Count+r.ReplayDelays.Count > 0 {
		t := report.Table{Title: "Delay from the runtime's stamp to the receipt", Columns: []string{"events", "p50", "p90", "p99", "max"}}
		row := func(name string, q bench.LatencyResult) {
			if q.Count > 0 {
				t.Rows = append(t.Rows, report.Row{Name: name, Cells: report.Cells(fmt.Sprint(q.Count), short(q.P50), short(q.P90), short(q.P99), short(q.Max))})
			}
		}
		for _, kind := range slices.Sorted(maps.Keys(r.Delays)) {
			row(kind, r.Delays[kind])
		}
		row("replays", r.ReplayDelays)
		row("exit to its stamp", r.ExitLag)
		list = append(list, t)
	}
	return append(list, calls)
}

// charts are the pictures of the watch.
func (k *Kept) charts() []report.Chart {
	var list []report.Chart
	if k.Summary.Stream != nil {
		list = append(list, k.scatter())
	}
	rate := func(name string, pick func(Sample) int) report.Line {
		const window = 1.0
		l := report.Line{Name: name}
		for i, from := 1, 0; i < len(k.Samples); i++ {
			a, b := k.Samples[from], k.Samples[i]
			if long := b.At - a.At; long >= window {
				l.Add((a.At+b.At)/2, float64(pick(b)-pick(a))/long)
				from = i
			}
		}
		return l
	}
	level := func(name string, pick func(Sample) float64) report.Line {
		l := report.Line{Name: name}
		for _, x := range k.Samples {
			l.Add(x.At, pick(x))
		}
		return l
	}
	return append(list,
		report.Overtime("events", "Events received", "/s", rate("events", func(x Sample) int { return x.Received })),
		report.Overtime("reads", "Lists of the whole runtime and reads of one pod", "/s", rate("lists", func(x Sample) int { return x.Lists }),
			rate("reads", func(x Sample) int { return x.Reads })),
		report.Overtime("period", "Relist period", "s", steps(level("period", func(x Sample) float64 { return x.PeriodSeconds }))),
		report.Overtime("missed", "Changes that no event told of, and failed reads, so far", "", level("missed", func(x Sample) float64 { return float64(x.Missed) }),
			level("failed", func(x Sample) float64 { return float64(x.Failed) })))
}

// scatter is the delay of each event, without flaws and with.
func (k *Kept) scatter() report.Chart {
	c := report.Overtime("scatter", "Each event: time from the runtime's stamp to the receipt", "s")
	c.Log, c.Dots, c.Wide = true, true, true
	good, flawed := report.Line{Name: "events"}, report.Line{Name: "events with flaws"}
	left := 0
	const most = 8000
	step := len(k.events)/most + 1
	for i := 0; i < len(k.events); i += step {
		e := k.events[i]
		switch {
		case e.AgeSeconds == nil || *e.AgeSeconds <= 0: // which a logarithmic scale has no place for
			left++
		case len(e.Flaws) > 0:
			flawed.Add(e.Received.Sub(k.Began).Seconds(), *e.AgeSeconds)
		default:
			good.Add(e.Received.Sub(k.Began).Seconds(), *e.AgeSeconds)
		}
	}
	c.Lines = []report.Line{good, flawed}
	if n := k.EventsKept * step; n > 1 {
		c.Note = fmt.Sprintf("One event of %d is drawn. ", n)
	}
	if left > 0 {
		c.Note += fmt.Sprintf("%d events without a stamp, or with one from the future, are not drawn.", left)
	}
	return c
}

// steps says of a line that a value holds until the next one.
func steps(l report.Line) report.Line {
	l.Steps = true
	return l
}
