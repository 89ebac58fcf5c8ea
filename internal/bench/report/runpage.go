// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// WritePage writes the run as a page.
func (s *Saved) WritePage(w io.Writer) error {
	r := s.Result
	columns := []*bench.ComparisonResult{&r.ComparisonResult}
	if r.Comparison != nil {
		columns = append(columns, r.Comparison)
	}
	p := Page{
		Title: "pleg-bench run on " + r.Runtime.Name + " " + r.Runtime.Version, Subtitle: s.subtitle(), Command: strings.Join(s.Command, " "),
		Verdict: "FAIL", Tone: Bad, Notes: slices.Concat(r.Failures, s.Failures), Charts: s.charts(),
	}
	if r.OK && len(s.Failures) == 0 {
		p.Verdict, p.Tone = "PASS: the cache equals the runtime in the end, and nothing was told twice or out of order", Good
	}
	var names []string
	for _, c := range columns {
		names = append(names, c.PLEG.Mode)
	}
	p.Tables = []Table{{Columns: names, Rows: rows(r, columns)}}
	p.Cards = []Table{{Title: "Calls by kind, while the load ran", Columns: names, Rows: callRows(columns)}}
	for _, side := range s.Sides {
		if b := side.band(side.Mode, r.Load.DurationSeconds); len(b.Spans) > 0 {
			p.Bands = append(p.Bands, b)
		}
	}
	return p.Write(w)
}

// subtitle says what was done to which runtime.
func (s *Saved) subtitle() string {
	l := s.Result.Load
	text := fmt.Sprintf("%s UTC · %d pods × %d containers · %.0f changes/s for %s · seed %d",
		s.Began.Format("2006-01-02 15:04"), l.Pods, l.Containers, l.AchievedRate, short(l.DurationSeconds), l.Seed)
	if p := s.Result.Runtime.Profile; p != "" {
		text = "fake runtime as " + p + " · " + text
	}
	if len(l.Faults) > 0 {
		text += " · faults " + strings.Join(l.Faults, " ")
	}
	return text
}

// rows is the table of what every generator has.
func rows(r *bench.Result, columns []*bench.ComparisonResult) []Row {
	var list []Row
	add := func(name, note string, show func(*bench.ComparisonResult) string) {
		one := Row{Name: name, Note: note}
		for _, c := range columns {
			one.Cells = append(one.Cells, Cell{Text: show(c)})
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
func callRows(columns []*bench.ComparisonResult) []Row {
	names, most := make(map[string]bool), 1
	for _, c := range columns {
		for name, n := range c.Cost.RPCs {
			names[name] = true
			most = max(most, n)
		}
	}
	var list []Row
	for _, name := range slices.Sorted(maps.Keys(names)) {
		one := Row{Name: name}
		for _, c := range columns {
			n := c.Cost.RPCs[name]
			one.Cells = append(one.Cells, Cell{fmt.Sprint(n), 100 * float64(n) / float64(most)})
		}
		list = append(list, one)
	}
	return list
}

// band is the states of a side's stream.
func (s Side) band(name string, end float64) Band {
	var at []float64
	var states []string
	for _, x := range s.Samples {
		at, states = append(at, x.At), append(states, x.State)
	}
	return NewBand(name, at, states, end)
}

// charts are the pictures of the run.
func (s *Saved) charts() []Chart {
	list := newCharts()
	for i, side := range s.Sides {
		addSide(list, side, side.Mode, i+1)
	}
	for i := range list {
		list[i].Marks = marks(s.Result)
	}
	return list
}

// marks are the moments that every chart shows.
func marks(r *bench.Result) (list []Mark) {
	if o := r.Outage; o != nil {
		list = append(list, Mark{o.AtSeconds, o.AtSeconds + o.DownSeconds, "runtime " + o.Kind})
	}
	if st := r.Stall; st != nil {
		list = append(list, Mark{st.AtSeconds, st.AtSeconds + st.ForSeconds, "Watch not read"})
	}
	return list
}

// newCharts returns the charts of runs, without lines.
func newCharts() []Chart {
	list := []Chart{
		Overtime("scatter", "Each change: time until Watch told of it", "s"),
		Overtime("percentiles", "The same, p50 and p99 (broken) of each second", "s"),
		Overtime("reads", "Lists of the whole runtime (broken) and reads of one pod", "/s"),
		Overtime("period", "Relist period", "s"),
		Overtime("cpu", "CPU of the generator's process", "cores"),
		Overtime("heap", "Heap of the generator's process", "MiB"),
	}
	list[0].Log, list[0].Dots, list[0].Wide, list[1].Log = true, true, true, true
	return list
}

// addSide adds a generator's lines to charts of newCharts, in a color of its own.
func addSide(list []Chart, side Side, name string, color int) {
	add := func(i int, l Line) {
		l.Color = color
		list[i].Lines = append(list[i].Lines, l)
	}
	points := dots(side, name)
	list[0].Note = strings.TrimSpace(list[0].Note + " " + points.left)
	add(0, points.Line)
	add(1, percentile(side, name, 0.5))
	add(1, dashed(percentile(side, name, 0.99)))
	add(2, dashed(rate(side, name+" lists", func(x bench.Sample) float64 { return float64(x.Lists) })))
	add(2, rate(side, name+" reads", func(x bench.Sample) float64 { return float64(x.Reads) }))
	period := level(side, name, func(x bench.Sample) float64 { return x.PeriodSeconds })
	period.Steps = true
	add(3, period)
	add(4, rate(side, name, func(x bench.Sample) float64 { return x.CPUSeconds }))
	add(5, level(side, name, func(x bench.Sample) float64 { return float64(x.HeapBytes) / (1 << 20) }))
}

// dashed breaks a line.
func dashed(l Line) Line {
	l.Dash = true
	return l
}

// scattered is a line of dots, and what is left out of them in words.
type scattered struct {
	Line
	left string
}

// dots are the changes of a generator; of very many every nth.
func dots(side Side, name string) scattered {
	const most = 5000
	points := slices.SortedFunc(slices.Values(side.points), func(a, b bench.Point) int { return int(a.At - b.At) })
	l := scattered{Line: Line{Name: name}}
	below := 0
	for i := 0; i < len(points); i += len(points)/most + 1 {
		if points[i].Latency <= 0 { // which a logarithmic scale has no place for
			below++
			continue
		}
		l.Add(points[i].At.Seconds(), points[i].Latency.Seconds())
	}
	if below > 0 {
		l.left = fmt.Sprintf("%d changes of %s took no time that the clock shows and are not drawn.", below, name)
	}
	return l
}

// percentile is a quantile of the changes of each second.
func percentile(side Side, name string, q float64) Line {
	bySecond := make(map[int]*bench.Histogram)
	for _, p := range side.points {
		second := int(p.At / time.Second)
		if bySecond[second] == nil {
			bySecond[second] = new(bench.Histogram)
		}
		bySecond[second].Record(p.Latency)
	}
	l := Line{Name: fmt.Sprintf("%s p%.0f", name, 100*q)}
	for _, second := range slices.Sorted(maps.Keys(bySecond)) {
		l.Add(float64(second)+0.5, bySecond[second].At(q).Seconds())
	}
	return l
}

// rate is how much a counter grows a second, over half a second at least.
func rate(side Side, name string, pick func(bench.Sample) float64) Line {
	const window = 0.5
	l := Line{Name: name}
	for i, from := 1, 0; i < len(side.Samples); i++ {
		a, b := side.Samples[from], side.Samples[i]
		if long := b.At - a.At; long >= window {
			l.Add((a.At+b.At)/2, (pick(b)-pick(a))/long)
			from = i
		}
	}
	return l
}

// level is a number as it was.
func level(side Side, name string, pick func(bench.Sample) float64) Line {
	l := Line{Name: name}
	for _, x := range side.Samples {
		l.Add(x.At, pick(x))
	}
	return l
}
