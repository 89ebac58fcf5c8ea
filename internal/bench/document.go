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
// docs/json.md documents its JSON.
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

	"github.com/evented-pleg/evented-pleg/internal/printable"
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
	// Of is the measure of which the row is a part, such as a quantile, empty for a measure of its
	// own. Text names it once for the rows that follow each other.
	Of    string
	Name  string
	Cells []string
	Note  string
}

// Add adds a row.
func (t *Table) Add(name, note string, cells ...string) {
	t.Rows = append(t.Rows, Row{Name: name, Cells: cells, Note: note})
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

// Printable returns the document with every text printable and of a bounded length, as names and
// errors of a runtime may be in all of them.
func (d Document) Printable() Document {
	text := func(s string) string { return printable.Cut(s, mostText) }
	texts := func(list []string) (out []string) {
		for _, s := range list {
			out = append(out, text(s))
		}
		return out
	}
	d.Title = text(d.Title)
	d.Verdict = text(d.Verdict)
	d.Lines = texts(d.Lines)
	d.Story = texts(d.Story)
	d.Notes = texts(d.Notes)
	d.Advice = texts(d.Advice)
	tables := make([]Table, 0, len(d.Tables))
	for _, t := range d.Tables {
		clean := Table{Title: text(t.Title), Columns: texts(t.Columns)}
		for _, r := range t.Rows {
			clean.Rows = append(clean.Rows, Row{
				Of:    text(r.Of),
				Name:  text(r.Name),
				Cells: texts(r.Cells),
				Note:  text(r.Note),
			})
		}
		tables = append(tables, clean)
	}
	d.Tables = tables
	return d
}

// mostText is the length of the longest text of a document, in bytes.
const mostText = 4 * printable.Most

// WriteText writes the document, as wide as given. On a terminal narrower than
// [Columns], a table that does not fit is written a row a paragraph.
func (d Document) WriteText(w io.Writer, width Width) error {
	d = d.Printable()
	var b strings.Builder
	line := func(s string, indent int) { b.WriteString(width.Fold(s, indent) + "\n") }
	line(d.Title, 2)
	for _, s := range d.Lines {
		line(s, 2)
	}
	for _, t := range d.Tables {
		b.WriteByte('\n')
		t.writeText(&b, width)
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
		own := len(s) - len(strings.TrimLeft(s, " "))
		line("  "+s, own+4)
	}
	if len(d.Advice) > 0 {
		b.WriteString("\n")
		line(AdviceTitle+":", 2)
	}
	for _, s := range d.Advice {
		line("- "+s+".", 2)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Table) writeText(b *strings.Builder, width Width) {
	const texts = 10 // their column
	if len(t.Columns) == 0 {
		for _, r := range t.Rows {
			b.WriteString(
				width.Fold(fmt.Sprintf("%-*s%s", texts, r.Name, strings.Join(r.Cells, " ")), texts) + "\n",
			)
		}
		return
	}
	lines := t.aligned()
	wide := func(line string) bool { return utf8.RuneCountInString(line) > int(width) }
	if width > 0 && width < Columns && slices.ContainsFunc(lines, wide) {
		lines = t.paragraphs(width)
	}
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
}

// aligned returns the lines of the table with its cells in columns.
func (t Table) aligned() (lines []string) {
	const gap = 4 // between a measure and its part
	of := 0
	for _, r := range t.Rows {
		if r.Of != "" {
			of = max(of, utf8.RuneCountInString(r.Of)+gap)
		}
	}
	names := []string{t.Title}
	last := ""
	for _, r := range t.Rows {
		name := r.Name
		if r.Of != "" {
			shown := r.Of
			if shown == last {
				shown = ""
			}
			name = fmt.Sprintf("%-*s%s", of, shown, r.Name)
		}
		last = r.Of
		names = append(names, name)
	}
	first := 0
	for _, name := range names {
		first = max(first, utf8.RuneCountInString(name))
	}
	rows := append([]Row{{Cells: t.Columns}}, t.Rows...)
	widths := make([]int, len(t.Columns))
	for _, r := range rows {
		for i, c := range r.Cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for n, r := range rows {
		var line strings.Builder
		fmt.Fprintf(&line, "  %-*s", first, names[n])
		for i, c := range r.Cells {
			fmt.Fprintf(&line, "  %*s", widths[i], c)
		}
		if r.Note != "" {
			line.WriteString("  " + r.Note)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// paragraphs returns the lines of the table with each row as a folded text, for narrow terminals.
func (t Table) paragraphs(width Width) (lines []string) {
	if t.Title != "" {
		lines = append(lines, "  "+t.Title)
	}
	for _, r := range t.Rows {
		name := r.Name
		if r.Of != "" {
			name = r.Of + ", " + r.Name
		}
		var parts []string
		for i, c := range r.Cells {
			if c != "" {
				parts = append(parts, strings.TrimSpace(t.Columns[i]+" "+c))
			}
		}
		text := "  " + name + ": " + strings.Join(parts, ", ")
		if r.Note != "" {
			text += " (" + r.Note + ")"
		}
		lines = append(lines, width.Fold(text, 6))
	}
	return lines
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
	return []Figure{
		{l.P50, prefix + "p50-sec"},
		{l.P90, prefix + "p90-sec"},
		{l.P99, prefix + "p99-sec"},
		{l.Max, prefix + "max-sec"},
	}
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

// Width is how many columns a line for people may have; 0 is any number.
type Width int

// Columns is the width of text, unless a terminal is narrower.
const Columns Width = 80

// units are not parted from their numbers.
var units = []string{"µs", "ms", "s", "B", "KiB", "MiB", "GiB", "%"}

// words returns the parts of a line between which it may be broken, each with the space behind it.
func words(s string) (list []string) {
	number := false
	for _, word := range strings.SplitAfter(s, " ") {
		bare := strings.TrimRight(word, " ;,.:)")
		if number && slices.Contains(units, bare) {
			list[len(list)-1] += word
		} else {
			list = append(list, word)
		}
		end := strings.TrimSuffix(word, " ")
		number = end != "" && end[len(end)-1] >= '0' && end[len(end)-1] <= '9'
	}
	return list
}

// Fold breaks a line at spaces to fit, and indents the continuation. A longer word stays whole.
func (w Width) Fold(s string, indent int) string {
	if w <= 0 {
		return s
	}
	var b strings.Builder
	column := 0
	for i, word := range words(s) {
		if long := len([]rune(strings.TrimRight(word, " "))); i > 0 && column+long > int(w) && column > indent {
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
