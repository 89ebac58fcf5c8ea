// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

var (
	//go:embed page.html
	pageText string
	//go:embed uplot/uPlot.iife.min.js
	uplotScript string
	//go:embed uplot/uPlot.min.css
	uplotStyle string
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"uplot": func() template.JS { return template.JS(uplotScript) }, // our own files
	"style": func() template.CSS { return template.CSS(uplotStyle) },
}).Parse(pageText))

// Page is one file that shows what was found without a network. What is empty is left out.
type Page struct {
	Title, Subtitle, Command string
	// Verdict is shown as Tone says: "good", "bad", or neither; Notes stand below it.
	Verdict, Tone string
	Notes         []string
	// Tables stand before the pictures, Cards after them.
	Tables []Table
	Bands  []Band
	Charts []Chart
	Cards  []Table
}

// Tones of a verdict.
const (
	Good = "good"
	Bad  = "bad"
)

// Table has a name and some columns a row, and a note if any row has one.
type Table struct {
	Title   string
	Columns []string
	Rows    []Row
	// Words says that cells are texts, which stand at the left and are broken.
	Words bool
}

// Row is one line of a table.
type Row struct {
	Name  string
	Cells []Cell
	Note  string
}

// Cell is a value; with a Share, in percent, a bar stands before it.
type Cell struct {
	Text  string
	Share float64
}

// Cells returns cells of texts.
func Cells(texts ...string) (list []Cell) {
	for _, t := range texts {
		list = append(list, Cell{Text: t})
	}
	return list
}

// HasNotes says whether any row has one.
func (t Table) HasNotes() bool {
	for _, r := range t.Rows {
		if r.Note != "" {
			return true
		}
	}
	return false
}

// Band is the states of one stream over time.
type Band struct {
	Name  string
	Spans []Span
}

// Span is a time in one state, with its share of the band in percent.
type Span struct {
	State string
	Share float64
	Title string
}

// NewBand returns the band of a stream that was found in these states at these times, in seconds; the
// last one lasted until end.
func NewBand(name string, at []float64, states []string, end float64) Band {
	b := Band{Name: name}
	for i := 0; i < len(states); {
		from := i
		for i < len(states) && states[i] == states[from] {
			i++
		}
		begin, until := at[from], end
		if from == 0 {
			begin = 0
		}
		if i < len(states) {
			until = at[i]
		}
		b.Spans = append(b.Spans, Span{
			State: states[from], Share: 100 * max(until-begin, 0) / max(end, 0.001),
			Title: fmt.Sprintf("%s from %s to %s", states[from], short(begin), short(until)),
		})
	}
	return b
}

// Chart is one picture: lines, or dots, over X, which is time in seconds unless XTitle says otherwise.
type Chart struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Unit is that of Y: s, or what stands behind numbers.
	Unit string `json:"unit"`
	// Log and XLog say that the scale is logarithmic, Dots that values are not joined.
	Log  bool `json:"log"`
	XLog bool `json:"xlog"`
	Dots bool `json:"dots"`
	// XTitle names what X is, XForm how it is written: s, share (of 1/(1-q)), or a number for "".
	XTitle string `json:"xtitle"`
	XForm  string `json:"xform"`
	Wide   bool   `json:"-"`
	// Note stands below.
	Note  string `json:"-"`
	Lines []Line `json:"lines"`
	Marks []Mark `json:"marks"`
}

// Line is one series. Thin and broken ones accompany others of the same Color, a number from 1; 0 is the
// next one. Steps says that a value holds until the next one.
type Line struct {
	Name  string    `json:"name"`
	X     []float64 `json:"x"`
	Y     []float64 `json:"y"`
	Thin  bool      `json:"thin"`
	Dash  bool      `json:"dash"`
	Steps bool      `json:"steps"`
	Color int       `json:"color"`
}

// Mark is a place on X that a chart shows, or all from At to To if that is larger.
type Mark struct {
	At   float64 `json:"at"`
	To   float64 `json:"to"`
	Text string  `json:"text"`
}

// Overtime returns a chart over time.
func Overtime(id, title, unit string, lines ...Line) Chart {
	return Chart{ID: id, Title: title, Unit: unit, XForm: "s", XTitle: "time", Lines: lines}
}

// Add adds a value.
func (l *Line) Add(x, y float64) {
	l.X = append(l.X, x)
	l.Y = append(l.Y, y)
}

// fill widens the last of the narrow charts, of which two stand side by side, if it would stand alone.
func (p *Page) fill() {
	narrow := 0
	for _, c := range p.Charts {
		if !c.Wide {
			narrow++
		}
	}
	if last := len(p.Charts) - 1; narrow%2 == 1 && !p.Charts[last].Wide {
		p.Charts[last].Wide = true
	}
}

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	p.Charts = slices.Clone(p.Charts)
	p.fill()
	for i, c := range p.Charts {
		// JSON has empty lists then, not null.
		p.Charts[i].Marks = append([]Mark{}, c.Marks...)
		p.Charts[i].Lines = append([]Line{}, c.Lines...)
		for j, l := range c.Lines {
			p.Charts[i].Lines[j].X, p.Charts[i].Lines[j].Y = append([]float64{}, l.X...), append([]float64{}, l.Y...)
		}
	}
	return pageTemplate.Execute(w, p)
}

func short(seconds float64) string { return bench.Short(time.Duration(seconds * float64(time.Second))) }
