// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Difference is one number of two runs.
type Difference struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	A    float64 `json:"a"`
	B    float64 `json:"b"`
	// Change is (B-A)/A, nil if A is 0.
	Change *float64 `json:"change"`
	// AInterval and BInterval are where the numbers lie at 95 %, nil where one run does not tell.
	AInterval *[2]float64 `json:"a_interval"`
	BInterval *[2]float64 `json:"b_interval"`
	// Sure says how sure it is that the runs differ: "differs" (at 95 %), "same" (nothing speaks for a
	// difference), or "one run each" where a single run tells nothing of the spread.
	Sure string `json:"sure"`
}

// Comparison is what two runs, or two generators of one run, differ in.
type Comparison struct {
	Schema string `json:"schema"`
	// A and B are what the two are called.
	A string `json:"a"`
	B string `json:"b"`
	// Unlike lists what was not the same about the runs themselves, empty if nothing.
	Unlike      []string     `json:"unlike"`
	Differences []Difference `json:"differences"`
}

// CompareSchema names the form of a Comparison's JSON.
const CompareSchema = "pleg-bench/compare/v1"

// Sureness of a Difference.
const (
	differs = "differs"
	same    = "same"
	single  = "one run each"
)

// Entry is one generator of a run that was kept.
type Entry struct {
	// Name is what to call it.
	Name   string
	run    *Saved
	side   Side
	result *bench.ComparisonResult
}

// UnderTest returns the generator under test.
func (s *Saved) UnderTest(name string) Entry {
	return Entry{name, s, s.Sides[0], &s.Result.ComparisonResult}
}

// Beside returns the generator that watched the same load, false if there was none.
func (s *Saved) Beside(name string) (Entry, bool) {
	if s.Result.Comparison == nil || len(s.Sides) < 2 || s.Sides[1].Latency == nil {
		return Entry{}, false
	}
	return Entry{name, s, s.Sides[1], s.Result.Comparison}, true
}

// Compare holds two generators against each other.
func Compare(a, b Entry) Comparison {
	c := Comparison{Schema: CompareSchema, A: a.Name, B: b.Name, Unlike: []string{}, Differences: []Difference{}}
	if a.run != b.run {
		c.Unlike = unlike(a.run.Result, b.run.Result)
	}
	add := func(name, unit string, x, y float64, sure string) *Difference {
		d := Difference{Name: name, Unit: unit, A: x, B: y, Sure: sure}
		if x != 0 {
			d.Change = new((y - x) / x)
		}
		c.Differences = append(c.Differences, d)
		return &c.Differences[len(c.Differences)-1]
	}
	ha, hb := a.side.Latency, b.side.Latency
	for _, q := range []float64{0.5, 0.9, 0.99} {
		sure := apart(ha, hb, q)
		d := add(fmt.Sprintf("change told on Watch after, p%.0f", 100*q), "s", ha.At(q).Seconds(), hb.At(q).Seconds(), sure)
		if sure != single {
			d.AInterval, d.BInterval = bounds(ha, q), bounds(hb, q)
		}
	}
	ra, rb := a.result, b.result
	count := func(name string, x, y int) {
		d := add(name, "", float64(x), float64(y), countsApart(x, y))
		d.AInterval, d.BInterval = countBounds(x), countBounds(y)
	}
	add("GetNewerThan(now) answered, p50", "s", ra.Freshness.P50, rb.Freshness.P50, single)
	add("GetNewerThan(now) answered, p99", "s", ra.Freshness.P99, rb.Freshness.P99, single)
	count("changes that nobody saw", ra.Events.Unseen, rb.Events.Unseen)
	count("events missed", ra.Events.Missed, rb.Events.Missed)
	count("lists of the whole runtime", ra.Cost.Relists, rb.Cost.Relists)
	count("reads of one pod", ra.Cost.Inspections, rb.Cost.Inspections)
	count("CRI calls", calls(ra), calls(rb))
	add("CPU", "s", ra.Cost.PLEGCPUSeconds, rb.Cost.PLEGCPUSeconds, single)
	add("memory, max", "B", float64(ra.Cost.PLEGMaxRSSBytes), float64(rb.Cost.PLEGMaxRSSBytes), single)
	return c
}

// bounds is where a quantile lies, in seconds.
func bounds(h *bench.Histogram, q float64) *[2]float64 {
	low, high := interval(h, q)
	return &[2]float64{low.Seconds(), high.Seconds()}
}

// countBounds is where the mean of a count lies: 3 is what a count of 0 leaves possible.
func countBounds(n int) *[2]float64 {
	off := normal95 * math.Sqrt(float64(n))
	return &[2]float64{max(float64(n)-off, 0), max(float64(n)+off, 3)}
}

func calls(r *bench.ComparisonResult) (n int) {
	for _, k := range r.Cost.RPCs {
		n += k
	}
	return n
}

// unlike names what makes two runs hard to compare.
func unlike(a, b *bench.Result) []string {
	list := []string{}
	note := func(what string, x, y any) {
		if fmt.Sprint(x) != fmt.Sprint(y) {
			list = append(list, fmt.Sprintf("%s: %v and %v", what, x, y))
		}
	}
	note("runtime", a.Runtime.Name+" "+a.Runtime.Version, b.Runtime.Name+" "+b.Runtime.Version)
	note("mode", a.PLEG.Mode, b.PLEG.Mode)
	note("pods", a.Load.Pods, b.Load.Pods)
	note("containers", a.Load.Containers, b.Load.Containers)
	note("rate", a.Load.Rate, b.Load.Rate)
	note("duration", a.Load.DurationSeconds, b.Load.DurationSeconds)
	note("faults", a.Load.Faults, b.Load.Faults)
	return list
}

// normal95 is how many standard deviations hold 95 % of a normal distribution.
const normal95 = 1.96

// apart says whether a quantile of two sets differs: whether the intervals in which it lies, at 95 %, by
// the binomial distribution of ranks, do not touch. That errs on the side of "same".
func apart(a, b *bench.Histogram, q float64) string {
	const fewest = 20
	if a.Count() < fewest || b.Count() < fewest {
		return single
	}
	lowA, highA := interval(a, q)
	lowB, highB := interval(b, q)
	if lowA > highB || lowB > highA {
		return differs
	}
	return same
}

// interval is where a quantile lies, at 95 %.
func interval(h *bench.Histogram, q float64) (low, high time.Duration) {
	n := float64(h.Count())
	off := normal95 * math.Sqrt(q*(1-q)/n)
	return h.At(max(q-off, 0)), h.At(min(q+off, 1))
}

// countsApart says whether two counts differ by more than chance would make them (Poisson, at 95 %).
func countsApart(a, b int) string {
	if math.Abs(float64(a-b)) > normal95*math.Sqrt(float64(a+b)) {
		return differs
	}
	return same
}

// WriteText writes the comparison for people, in 80 columns.
func (c Comparison) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, u := range c.Unlike {
		fmt.Fprintf(&b, "not alike: %s\n", u)
	}
	fmt.Fprintf(&b, "A: %s\nB: %s\n\n%-34s %10s %10s %9s  %s\n", c.A, c.B, "", "A", "B", "change", "")
	for _, d := range c.Differences {
		fmt.Fprintf(&b, "%-34s %10s %10s %9s  %s\n", d.Name, d.show(d.A), d.show(d.B), d.change(), d.Sure)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// change writes how much B is more than A, as a share or, if that is large, as a factor.
func (d Difference) change() string {
	const large = 10
	switch {
	case d.Change == nil:
		return "-"
	case *d.Change >= large:
		return "× " + strconv.FormatFloat(*d.Change+1, 'f', 0, 64)
	}
	return fmt.Sprintf("%+.1f %%", 100**d.Change)
}

// within writes an interval.
func (d Difference) within(i *[2]float64) string {
	if i == nil {
		return ""
	}
	return fmt.Sprintf("%s … %s", d.show(i[0]), d.show(i[1]))
}

func (d Difference) show(v float64) string {
	switch d.Unit {
	case "s":
		return bench.Short(time.Duration(v * float64(time.Second)))
	case "B":
		return bench.Bytes(uint64(v))
	}
	return fmt.Sprintf("%.0f", v)
}
