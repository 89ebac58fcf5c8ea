// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
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

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Title, Subtitle, Command, Verdict string
	Good                              bool
	Notes                             []string
	Columns                           []string
	Rows                              []row
	Calls                             []call
	Bands                             []band
	Uplot                             template.JS
	Style                             template.CSS
	Charts                            []chart
}

type row struct {
	Name  string
	Cells []string
	Note  string
}

// call is a kind of call to the runtime with each generator's number, and its share of the largest.
type call struct {
	Name  string
	Cells []cell
}

type cell struct {
	N     int
	Share float64
}

// band is the states of one generator's stream over time.
type band struct {
	Mode  string
	Spans []span
}

type span struct {
	State string
	Share float64
	Title string
}

// chart is one picture: series over time in seconds.
type chart struct {
	ID    string   `json:"id"`
	Title string   `json:"title"`
	Unit  string   `json:"unit"`
	Log   bool     `json:"log"`
	Dots  bool     `json:"dots"`
	Lines []line   `json:"lines"`
	Marks []marked `json:"marks"`
}

type line struct {
	Name string     `json:"name"`
	X    []float64  `json:"x"`
	Y    []*float64 `json:"y"`
}

// marked is a moment that every chart shows.
type marked struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// WritePage writes report.html: one file that shows the run without a network.
func (s *Saved) WritePage(w io.Writer) error {
	r := s.Result
	columns := []*bench.ComparisonResult{own(r)}
	if r.Comparison != nil {
		columns = append(columns, r.Comparison)
	}
	p := page{
		Title:    "pleg-bench run on " + r.Runtime.Name + " " + r.Runtime.Version,
		Subtitle: fmt.Sprintf("%s UTC · %d pods × %d containers · %.0f changes/s for %s · seed %d", s.Began.Format("2006-01-02 15:04"), r.Load.Pods, r.Load.Containers, r.Load.AchievedRate, short(r.Load.DurationSeconds), r.Load.Seed),
		Command:  strings.Join(s.Command, " "),
		Good:     r.OK && len(s.Failures) == 0,
		Uplot:    template.JS(uplotScript), Style: template.CSS(uplotStyle), // our own files
	}
	p.Verdict = "FAIL"
	if p.Good {
		p.Verdict = "PASS: the cache equals the runtime in the end, and nothing was told twice or out of order"
	}
	p.Notes = slices.Concat(r.Failures, s.Failures)
	if r.Runtime.Profile != "" {
		p.Subtitle = "fake runtime as " + r.Runtime.Profile + " · " + p.Subtitle
	}
	if len(r.Load.Faults) > 0 {
		p.Subtitle += " · faults " + strings.Join(r.Load.Faults, " ")
	}
	for _, c := range columns {
		p.Columns = append(p.Columns, c.PLEG.Mode)
	}
	p.Rows, p.Calls = rows(r, columns), callRows(columns)
	p.Bands = s.bands()
	p.Charts = s.charts()
	return pageTemplate.Execute(w, p)
}

func short(seconds float64) string { return bench.Short(time.Duration(seconds * float64(time.Second))) }

// rows is the table of what every generator has.
func rows(r *bench.Result, columns []*bench.ComparisonResult) []row {
	var list []row
	add := func(name, note string, show func(*bench.ComparisonResult) string) {
		one := row{Name: name, Note: note}
		for _, c := range columns {
			one.Cells = append(one.Cells, show(c))
		}
		list = append(list, one)
	}
	latency := func(pick func(bench.LatencyResult) float64) func(*bench.ComparisonResult) string {
		return func(c *bench.ComparisonResult) string {
			if c.Latency.Count == 0 {
				return "-"
			}
			return short(pick(c.Latency))
		}
	}
	count := func(pick func(*bench.ComparisonResult) int) func(*bench.ComparisonResult) string {
		return func(c *bench.ComparisonResult) string { return fmt.Sprint(pick(c)) }
	}
	add("Change told on Watch after, p50", "", latency(func(l bench.LatencyResult) float64 { return l.P50 }))
	add("p90", "", latency(func(l bench.LatencyResult) float64 { return l.P90 }))
	add("p99", "", latency(func(l bench.LatencyResult) float64 { return l.P99 }))
	add("max", "", latency(func(l bench.LatencyResult) float64 { return l.Max }))
	add("Changes that nobody saw", fmt.Sprintf("of %d", r.Events.Changes), count(func(c *bench.ComparisonResult) int { return c.Events.Unseen }))
	add("GetNewerThan(now) answered, p99", "", func(c *bench.ComparisonResult) string { return short(c.Freshness.P99) })
	add("Answers older than known", "", count(func(c *bench.ComparisonResult) int { return c.Freshness.StaleReads }))
	add("Events missed by the stream", "", count(func(c *bench.ComparisonResult) int { return c.Events.Missed }))
	add("Lists of the whole runtime", "", count(func(c *bench.ComparisonResult) int { return c.Cost.Relists }))
	add("Reads of one pod", "", count(func(c *bench.ComparisonResult) int { return c.Cost.Inspections }))
	add("Relist period at the end", "", func(c *bench.ComparisonResult) string { return short(c.PLEG.RelistPeriodSeconds) })
	add("CPU", "", func(c *bench.ComparisonResult) string { return short(c.Cost.PLEGCPUSeconds) })
	add("Memory, max", "", func(c *bench.ComparisonResult) string { return bench.Bytes(uint64(c.Cost.PLEGMaxRSSBytes)) })
	add("Pods that differ at the end", fmt.Sprintf("of %d", r.Consistency.CheckedPods), count(func(c *bench.ComparisonResult) int { return c.Consistency.Mismatches }))
	return list
}

// callRows is the table of calls by kind.
func callRows(columns []*bench.ComparisonResult) []call {
	names, most := make(map[string]bool), 1
	for _, c := range columns {
		for name, n := range c.Cost.RPCs {
			names[name] = true
			most = max(most, n)
		}
	}
	var list []call
	for _, name := range slices.Sorted(maps.Keys(names)) {
		one := call{Name: name}
		for _, c := range columns {
			n := c.Cost.RPCs[name]
			one.Cells = append(one.Cells, cell{n, 100 * float64(n) / float64(most)})
		}
		list = append(list, one)
	}
	return list
}

// bands turns samples into spans of one state each.
func (s *Saved) bands() []band {
	var list []band
	for _, side := range s.Sides {
		b := band{Mode: side.Mode}
		end := s.Result.Load.DurationSeconds
		for i := 0; i < len(side.Samples); {
			from := i
			for i < len(side.Samples) && side.Samples[i].State == side.Samples[from].State {
				i++
			}
			begin, until := side.Samples[from].At, end
			if from == 0 {
				begin = 0
			}
			if i < len(side.Samples) {
				until = side.Samples[i].At
			}
			b.Spans = append(b.Spans, span{
				State: side.Samples[from].State, Share: 100 * max(until-begin, 0) / max(end, 0.001),
				Title: fmt.Sprintf("%s from %s to %s", side.Samples[from].State, short(begin), short(until)),
			})
		}
		if len(b.Spans) > 0 {
			list = append(list, b)
		}
	}
	return list
}

// charts are the pictures of the run.
func (s *Saved) charts() []chart {
	marks := []marked{}
	if o := s.Result.Outage; o != nil {
		marks = append(marks, marked{o.AtSeconds, "runtime " + o.Kind}, marked{o.AtSeconds + o.DownSeconds, "back"})
	}
	if st := s.Result.Stall; st != nil {
		marks = append(marks, marked{st.AtSeconds, "Watch not read"}, marked{st.AtSeconds + st.ForSeconds, "read again"})
	}
	list := []chart{
		{ID: "scatter", Title: "Each change: time until Watch told of it", Unit: "s", Log: true, Dots: true},
		{ID: "percentiles", Title: "The same, p50 and p99 of each second", Unit: "s", Log: true},
		{ID: "reads", Title: "Lists of the whole runtime and reads of one pod, a second", Unit: "/s"},
		{ID: "period", Title: "Relist period", Unit: "s"},
		{ID: "cpu", Title: "CPU of the generator's process", Unit: "cores"},
		{ID: "heap", Title: "Heap of the generator's process", Unit: "MiB"},
	}
	for _, side := range s.Sides {
		list[0].Lines = append(list[0].Lines, dots(side))
		list[1].Lines = append(list[1].Lines, percentile(side, 0.5), percentile(side, 0.99))
		list[2].Lines = append(list[2].Lines,
			rate(side, "lists", func(x bench.Sample) float64 { return float64(x.Lists) }),
			rate(side, "reads", func(x bench.Sample) float64 { return float64(x.Reads) }))
		list[3].Lines = append(list[3].Lines, level(side, func(x bench.Sample) float64 { return x.PeriodSeconds }))
		list[4].Lines = append(list[4].Lines, rate(side, "", func(x bench.Sample) float64 { return x.CPUSeconds }))
		list[5].Lines = append(list[5].Lines, level(side, func(x bench.Sample) float64 { return float64(x.HeapBytes) / (1 << 20) }))
	}
	for i := range list {
		list[i].Marks = marks
	}
	return list
}

// dots are the changes of a generator; of very many every nth.
func dots(side Side) line {
	const most = 5000
	points := slices.SortedFunc(slices.Values(side.points), func(a, b bench.Point) int { return int(a.At - b.At) })
	l := line{Name: side.Mode, X: []float64{}, Y: []*float64{}}
	for i := 0; i < len(points); i += len(points)/most + 1 {
		l.add(points[i].At.Seconds(), points[i].Latency.Seconds())
	}
	return l
}

func (l *line) add(x, y float64) {
	l.X = append(l.X, x)
	l.Y = append(l.Y, &y)
}

// percentile is a quantile of the changes of each second.
func percentile(side Side, q float64) line {
	bySecond := make(map[int]*bench.Histogram)
	for _, p := range side.points {
		second := int(p.At / time.Second)
		if bySecond[second] == nil {
			bySecond[second] = new(bench.Histogram)
		}
		bySecond[second].Record(p.Latency)
	}
	l := line{Name: fmt.Sprintf("%s p%.0f", side.Mode, 100*q), X: []float64{}, Y: []*float64{}}
	for _, second := range slices.Sorted(maps.Keys(bySecond)) {
		l.add(float64(second)+0.5, bySecond[second].At(q).Seconds())
	}
	return l
}

// rate is how much a counter grows a second, over half a second at least.
func rate(side Side, what string, pick func(bench.Sample) float64) line {
	const window = 0.5
	l := line{Name: strings.TrimSpace(side.Mode + " " + what), X: []float64{}, Y: []*float64{}}
	for i, from := 1, 0; i < len(side.Samples); i++ {
		a, b := side.Samples[from], side.Samples[i]
		if long := b.At - a.At; long >= window {
			l.add((a.At+b.At)/2, (pick(b)-pick(a))/long)
			from = i
		}
	}
	return l
}

// level is a number as it was.
func level(side Side, pick func(bench.Sample) float64) line {
	l := line{Name: side.Mode, X: []float64{}, Y: []*float64{}}
	for _, x := range side.Samples {
		l.add(x.At, pick(x))
	}
	return l
}
