// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// WriteComparison writes what two generators differ in into a folder: result.json, differences.csv and
// report.html.
func WriteComparison(dir string, command []string, a, b Entry) error {
	c := Compare(a, b)
	return Files{
		resultFile: JSON(c), "differences.csv": c.writeCSV,
		pageFile: func(w io.Writer) error { return comparisonPage(command, c, a, b).Write(w) },
	}.Write(dir)
}

func (c Comparison) writeCSV(w io.Writer) error {
	table := csv.NewWriter(w)
	_ = table.Write([]string{"name", "unit", "a", "b", "change", "sure"}) // Flush keeps errors
	for _, d := range c.Differences {
		change := ""
		if d.Change != nil {
			change = Number(*d.Change)
		}
		_ = table.Write([]string{d.Name, d.Unit, Number(d.A), Number(d.B), change, d.Sure})
	}
	table.Flush()
	return table.Error()
}

// verdict sums the differences up in words.
func (c Comparison) verdict() string {
	var sure []string
	for _, d := range c.Differences {
		if d.Sure == differs {
			sure = append(sure, d.Name)
		}
	}
	if len(sure) == 0 {
		return "Nothing differs by more than chance would make it."
	}
	return "They differ, at 95 %, in: " + strings.Join(sure, "; ") + "."
}

// comparisonPage shows both beside each other.
func comparisonPage(command []string, c Comparison, a, b Entry) Page {
	p := Page{
		Title: fmt.Sprintf("pleg-bench compare: %s and %s", c.A, c.B), Command: strings.Join(command, " "),
		Verdict: c.verdict(), Subtitle: fmt.Sprintf("A is %s, of %s UTC · B is %s, of %s UTC", c.A, a.run.Began.Format("2006-01-02 15:04"), c.B, b.run.Began.Format("2006-01-02 15:04")),
	}
	for _, u := range c.Unlike {
		p.Notes = append(p.Notes, "not alike: "+u)
	}
	t := Table{Columns: []string{"A", "B", "change", "", "A at 95 %", "B at 95 %"}}
	for _, d := range c.Differences {
		t.Rows = append(t.Rows, Row{Name: d.Name, Cells: Cells(d.show(d.A), d.show(d.B), d.change(), d.Sure, d.within(d.AInterval), d.within(d.BInterval))})
	}
	p.Tables = []Table{t}
	p.Charts = append([]Chart{quantiles(a, b)}, newCharts()...)
	for i, e := range []Entry{a, b} {
		name := "AB"[i : i+1]
		if band := e.side.band(name+": "+e.Name, e.run.Result.Load.DurationSeconds); len(band.Spans) > 0 {
			p.Bands = append(p.Bands, band)
		}
		addSide(p.Charts[1:], e.side, name, i+1)
		for _, m := range marks(e.run.Result) {
			switch {
			case a.run != b.run:
				m.Text = name + ": " + m.Text
			case i > 0:
				continue // the one run's are there
			}
			for c := range p.Charts[1:] {
				p.Charts[1+c].Marks = append(p.Charts[1+c].Marks, m)
			}
		}
	}
	calls := callRows([]*bench.ComparisonResult{a.result, b.result})
	p.Cards = []Table{{Title: "Calls by kind, while the load ran", Columns: []string{"A", "B"}, Rows: calls}}
	return p
}

// quantiles is the chart of all quantiles, each with the interval in which it lies at 95 %.
func quantiles(a, b Entry) Chart {
	c := Chart{
		ID: "quantiles", Title: "Time within which this share of changes was told, and (thin) where that lies at 95 %", Unit: "s", Log: true, XLog: true, XForm: "share",
		XTitle: "share of changes", Wide: true,
	}
	for i, e := range []Entry{a, b} {
		h, name := e.side.Latency, "AB"[i:i+1]
		line, low, high := Line{Name: name, Color: i + 1}, Line{Name: name + " from", Thin: true, Color: i + 1}, Line{Name: name + " to", Thin: true, Color: i + 1}
		const perDecade = 20
		most := float64(h.Count()) // beyond, the largest stands for all
		for k := 0; ; k++ {
			x := math.Pow(10, float64(k)/perDecade)
			if x > most {
				break
			}
			q := 1 - 1/x
			from, to := interval(h, q)
			line.Add(x, h.At(q).Seconds())
			low.Add(x, from.Seconds())
			high.Add(x, to.Seconds())
		}
		c.Lines = append(c.Lines, line, low, high)
	}
	return c
}

// LoadPair loads two runs, or the two generators of one, to compare.
func LoadPair(paths ...string) (a, b Entry, err error) {
	runs := make([]*Saved, len(paths))
	for i, path := range paths {
		if runs[i], err = Load(path); err != nil {
			return a, b, err
		}
	}
	if len(runs) > 1 {
		return runs[0].UnderTest(paths[0]), runs[1].UnderTest(paths[1]), nil
	}
	b, ok := runs[0].Beside("")
	if !ok {
		return a, b, fmt.Errorf("%s has one generator: name a second run, or make one with run --compare --out", paths[0])
	}
	b.Name = b.side.Mode
	return runs[0].UnderTest(runs[0].Sides[0].Mode), b, nil
}
