// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
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

const pageFile = "report.html"

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"uplot":  func() template.JS { return template.JS(uplotScript) }, // our own files
	"style":  func() template.CSS { return template.CSS(uplotStyle) },
	"advice": func() string { return bench.AdviceTitle },
}).Parse(pageText))

// page is a document with charts: a single file without need of a network.
type page struct {
	bench.Document
	Command string
	Began   time.Time
	Bands   []band
	Charts  []chart
}

// band is the states of a stream over time.
type band struct {
	Name  string
	Spans []span
}

// span is a time in a state, with its share of the band in percent.
type span struct {
	State string
	Share float64
	Title string
}

// bandOf returns the states of a series, the last of them until end.
func bandOf(s bench.Series, end float64) band {
	b := band{Name: s.Name}
	for i := 0; i < len(s.Samples); {
		from := i
		for i < len(s.Samples) && s.Samples[i].State == s.Samples[from].State {
			i++
		}
		begin, until := s.Samples[from].At, end
		if from == 0 {
			begin = 0
		}
		if i < len(s.Samples) {
			until = s.Samples[i].At
		}
		b.Spans = append(b.Spans, span{
			State: s.Samples[from].State, Share: 100 * max(until-begin, 0) / max(end, 0.001),
			Title: fmt.Sprintf("%s from %s to %s", s.Samples[from].State, bench.Seconds(begin), bench.Seconds(until)),
		})
	}
	return b
}

// chart is a picture over time: lines, or dots on a logarithmic scale.
type chart struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Unit is the unit of the values: s, or a text behind numbers.
	Unit string `json:"unit"`
	Dots bool   `json:"dots"`
	Wide bool   `json:"-"`
	// Note stands below.
	Note  string       `json:"-"`
	Lines []line       `json:"lines"`
	Marks []bench.Mark `json:"marks"`
}

// line is a series. Color counts from 1.
type line struct {
	Name  string    `json:"name"`
	X     []float64 `json:"x"`
	Y     []float64 `json:"y"`
	Dash  bool      `json:"dash"`
	Steps bool      `json:"steps"`
	Color int       `json:"color"`
}

func (l *line) add(x, y float64) {
	l.X = append(l.X, x)
	l.Y = append(l.Y, y)
}

// page returns the page of a finding.
func (s *Saved) page() page {
	p := page{Document: s.Result.Document(), Command: strings.Join(s.Command, " "), Began: s.Began, Charts: charts(s.Timeline)}
	if len(s.Failures) > 0 {
		p.Tone, p.Notes = bench.Bad, slices.Concat(p.Notes, s.Failures)
		p.Verdict = strings.TrimSpace(p.Verdict + " Not every expectation was kept.")
	}
	end := 0.0
	for _, series := range s.Timeline {
		for _, x := range series.Samples {
			end = max(end, x.At)
		}
	}
	for _, series := range s.Timeline {
		if len(series.Samples) > 0 {
			p.Bands = append(p.Bands, bandOf(series, end))
		}
	}
	for i := range p.Charts {
		p.Charts[i].Marks = append([]bench.Mark{}, p.Marks...)
	}
	return p
}

// Write writes the page.
func (p page) Write(w io.Writer) error { return pageTemplate.Execute(w, p) }

// charts are the pictures of a timeline. A picture without a value is left out.
func charts(timeline []bench.Series) []chart {
	list := []chart{{ID: "scatter", Title: "Each change or event: when, and how late", Unit: "s", Dots: true, Wide: true}}
	for i, s := range timeline {
		if l, left := dots(s, i+1); len(l.X) > 0 {
			list[0].Lines = append(list[0].Lines, l)
			list[0].Note += left
		}
	}
	add := func(id, title, unit string, steps bool, value func(name string, s bench.Series) []line) {
		c := chart{ID: id, Title: title, Unit: unit}
		some := false
		for i, s := range timeline {
			for j, l := range value(s.Name, s) {
				l.Color, l.Dash, l.Steps = i+1, j > 0, steps
				some = some || slices.ContainsFunc(l.Y, func(y float64) bool { return y != 0 })
				c.Lines = append(c.Lines, l)
			}
		}
		if some {
			list = append(list, c)
		}
	}
	each := func(form func(bench.Series, string, func(bench.Sample) float64) line, picks ...any) func(string, bench.Series) []line {
		return func(name string, s bench.Series) (lines []line) {
			for i := 0; len(s.Samples) > 0 && i < len(picks); i += 2 {
				lines = append(lines, form(s, strings.TrimSpace(name+" "+picks[i].(string)), picks[i+1].(func(bench.Sample) float64)))
			}
			return lines
		}
	}
	add("reads", "Lists of the whole runtime, and reads of one pod (dashed)", "/s", false, each(rate,
		"lists", func(x bench.Sample) float64 { return float64(x.Lists) }, "reads", func(x bench.Sample) float64 { return float64(x.Reads) }))
	add("events", "Events received", "/s", false, each(rate, "", func(x bench.Sample) float64 { return float64(x.Received) }))
	add("period", "Relist period", "s", true, each(level, "", func(x bench.Sample) float64 { return x.PeriodSeconds }))
	add("missed", "Changes that no event told of, and failed reads (dashed), so far", "", true, each(level,
		"changes", func(x bench.Sample) float64 { return float64(x.Missed) }, "failed", func(x bench.Sample) float64 { return float64(x.Failed) }))
	add("cpu", "CPU of the generator's process, of one core", "%", false, each(rate, "", func(x bench.Sample) float64 { return 100 * x.CPUSeconds }))
	add("heap", "Heap of the generator's process", "MiB", false, each(level, "", func(x bench.Sample) float64 { return float64(x.HeapBytes) / (1 << 20) }))
	if len(list[0].Lines) == 0 {
		list = list[1:]
	}
	narrow := len(list)
	if len(list) > 0 && list[0].Wide {
		narrow--
	}
	if narrow%2 == 1 { // two stand side by side
		list[len(list)-1].Wide = true
	}
	return list
}

// dots returns the points of a series, thinned for browsers, and a note on the omitted points.
func dots(s bench.Series, color int) (l line, note string) {
	const most = 8000
	l = line{Name: s.Name, Color: color}
	step, below := len(s.Points)/most+1, 0
	points := slices.SortedFunc(slices.Values(s.Points), func(a, b bench.Point) int { return int(1e9 * (a[0] - b[0])) })
	for i := 0; i < len(points); i += step {
		if points[i][1] <= 0 { // no place on a logarithmic scale
			below++
			continue
		}
		l.add(points[i][0], points[i][1])
	}
	if step > 1 {
		note = fmt.Sprintf("Of %s, one point of %d is drawn. ", s.Name, step)
	}
	if below > 0 {
		note += fmt.Sprintf("%s of %s not drawn: no delay that the clock shows. ", bench.Count(below, "point"), s.Name)
	}
	return l, note
}

// rate is how much a counter grows a second, over half a second at least.
func rate(s bench.Series, name string, pick func(bench.Sample) float64) line {
	const window = 0.5
	l := line{Name: name}
	for i, from := 1, 0; i < len(s.Samples); i++ {
		a, b := s.Samples[from], s.Samples[i]
		if long := b.At - a.At; long >= window {
			l.add((a.At+b.At)/2, (pick(b)-pick(a))/long)
			from = i
		}
	}
	return l
}

// level is a number unchanged.
func level(s bench.Series, name string, pick func(bench.Sample) float64) line {
	l := line{Name: name}
	for _, x := range s.Samples {
		l.add(x.At, pick(x))
	}
	return l
}

// WriteDocument writes a document without charts as a page into the folder.
func WriteDocument(dir string, command []string, d bench.Document) error {
	p := page{Document: d, Command: strings.Join(command, " "), Began: time.Now().UTC()}
	return files{pageFile: p.Write}.write(dir)
}
