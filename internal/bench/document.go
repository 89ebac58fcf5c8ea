// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench holds the parts shared by the processes of pleg-bench, and evaluates their reports.
//
// # Model
//
// A run has three processes, each with its own costs: the runtime (the fake runtime as a child, or
// a real runtime), the generator under test with its cache, Watch consumer and pod workers (package
// worker, a child), and the parent, which drives the load through CRI calls (package load), knows
// the history, and judges. Every process stamps times with [Stamp], so times are comparable.
//
// The runtime's own history and the events delivered by Watch meet in a [Ledger]. At the end, the
// cache's content and a full read of the runtime meet in [Compare]. A [Result] holds everything;
// docs/pleg-bench.md documents its JSON.
//
// # Concurrency
//
// Types here have no locks: one goroutine of the parent owns each.
package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Finding is the outcome of a command: a run, a stress test, a watch. Its JSON is the command's.
type Finding interface {
	// Document returns the outcome for people: text on a terminal, or a page.
	Document() Document
	// Benchmarks returns the numbers for benchstat.
	Benchmarks() []Benchmark
	// Unmeasured returns the paths in the JSON of everything that was not measured. Zeros there mean
	// nothing.
	Unmeasured() []string
}

// Document is an outcome in words and tables. Empty parts are left out.
type Document struct {
	Title string
	// Lines say what was done, Story what happened besides the tables.
	Lines  []string
	Tables []Table
	Story  []string
	// Verdict is shown as Tone says, Notes below it.
	Verdict string
	Tone    Tone
	Notes   []string
	// Advice is for those who maintain the runtime.
	Advice []string
	// Marks are the moments that every chart of a page shows.
	Marks []Mark
}

// Tone is how a verdict is shown.
type Tone string

// Tones.
const (
	Good    Tone = "good"
	Bad     Tone = "bad"
	Neutral Tone = ""
)

// AdviceTitle is the heading of a document's advice.
const AdviceTitle = "For those who maintain the runtime"

// Table is a table of numbers, or, without columns, of texts by name.
type Table struct {
	Title   string
	Columns []string
	Rows    []Row
}

// Row is one line of a table. Note stands behind the cells.
type Row struct {
	Name  string
	Cells []string
	Note  string
}

// Add adds a row.
func (t *Table) Add(name, note string, cells ...string) {
	t.Rows = append(t.Rows, Row{name, cells, note})
}

// HasNotes reports whether any row has a note.
func (t Table) HasNotes() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Note != "" })
}

// Mark is a moment of a run in seconds, or the time from At to To if To is later.
type Mark struct {
	At   float64 `json:"at"`
	To   float64 `json:"to"`
	Text string  `json:"text"`
}

// WriteText writes the document in 80 columns.
func (d Document) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(s string, indent int) { b.WriteString(Fold(s, indent) + "\n") }
	line(d.Title, 2)
	for _, s := range d.Lines {
		line(s, 2)
	}
	for _, t := range d.Tables {
		b.WriteByte('\n')
		t.writeText(&b)
	}
	if len(d.Story) > 0 {
		b.WriteByte('\n')
	}
	for _, s := range d.Story {
		line(s, 2)
	}
	if d.Verdict != "" {
		b.WriteByte('\n')
		line(d.Verdict, 6)
	}
	for _, s := range d.Notes {
		line("  "+s, 4)
	}
	if len(d.Advice) > 0 {
		b.WriteString("\n" + AdviceTitle + ":\n")
	}
	for _, s := range d.Advice {
		line("- "+s+".", 2)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Table) writeText(b *strings.Builder) {
	const words = 10 // the column of texts
	if len(t.Columns) == 0 {
		for _, r := range t.Rows {
			b.WriteString(Fold(fmt.Sprintf("%-*s%s", words, r.Name, strings.Join(r.Cells, " ")), words) + "\n")
		}
		return
	}
	first, widths := utf8.RuneCountInString(t.Title), make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = utf8.RuneCountInString(c)
	}
	for _, r := range t.Rows {
		first = max(first, utf8.RuneCountInString(r.Name))
		for i, c := range r.Cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	row := func(r Row) {
		var line strings.Builder
		line.WriteString(fmt.Sprintf("  %-*s", first, r.Name))
		for i, c := range r.Cells {
			line.WriteString(fmt.Sprintf("  %*s", widths[i], c))
		}
		if r.Note != "" {
			line.WriteString("  " + r.Note)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	row(Row{Name: t.Title, Cells: t.Columns})
	for _, r := range t.Rows {
		row(r)
	}
}

// Benchmark is a line in the format of Go's benchmarks.
type Benchmark struct {
	Name    string
	Figures []Figure
}

// Figure is a number. Its unit names the figure, such as p50-sec.
type Figure struct {
	Value float64
	Unit  string
}

// quantileFigures are those of durations, none if there are no durations.
func (l LatencyResult) figures(prefix string) []Figure {
	if l.Count == 0 {
		return nil
	}
	return []Figure{{l.P50, prefix + "p50-sec"}, {l.P90, prefix + "p90-sec"}, {l.P99, prefix + "p99-sec"}, {l.Max, prefix + "max-sec"}}
}

// Row returns quantiles as cells.
func (l LatencyResult) cells() []string {
	return []string{Seconds(l.P50), Seconds(l.P90), Seconds(l.P99), Seconds(l.Max)}
}

// NewDelayTable returns a table for [Table.AddDelays].
func NewDelayTable(title string) Table {
	return Table{Title: title, Columns: []string{"events", "p50", "p90", "p99", "max"}}
}

// AddDelays adds a row of quantiles, if there are any.
func (t *Table) AddDelays(name string, l LatencyResult) {
	if l.Count > 0 {
		t.Add(name, "", append([]string{fmt.Sprint(l.Count)}, l.cells()...)...)
	}
}

// Columns is how wide a line for people may be.
const Columns = 80

// Fold breaks a line at spaces to fit 80 columns, and indents the continuation.
func Fold(s string, indent int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.SplitAfter(s, " ") {
		if long := len([]rune(strings.TrimRight(word, " "))); i > 0 && column+long > Columns && column > indent {
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		}
		b.WriteString(word)
		column += len([]rune(word))
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
