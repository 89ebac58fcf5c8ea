// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Heads of the columns of a run's table.
const (
	evented = "evented"
	// polled heads the column of a generator that listens, on a runtime without events.
	polled = "polled"
)

// noEvents reports whether the generator listened in vain: the runtime has no event stream.
func (c *ComparisonResult) noEvents() bool {
	return c.PLEG.Mode == evented && c.PLEG.State == "Unsupported"
}

// Document implements [Finding].
func (r *Result) Document() Document {
	d := Document{
		Title:  r.Runtime.String(),
		Tables: []Table{r.table()},
		Story:  r.story(),
		Tone:   Bad,
	}
	l := r.Load
	span := r.Load.DurationSeconds
	slow := l.Changes > 0 && l.AchievedRate < 0.9*l.Rate && len(r.NoVerdict) == 0
	if slow {
		span = float64(l.Changes) / l.AchievedRate
	}
	head := fmt.Sprintf(
		"%s × %s, %.3g changes/s for %s, seed %d",
		Count(l.Pods, "pod"),
		Count(l.Containers, "container"),
		l.AchievedRate,
		Seconds(span),
		l.Seed,
	)
	if slow {
		head += fmt.Sprintf(" (asked for: %g changes/s for %s)", l.Rate, Seconds(l.DurationSeconds))
	}
	if len(r.Load.Faults) > 0 {
		head += ", faults " + strings.Join(r.Load.Faults, " ")
	}
	d.Lines = []string{head}
	if r.StoodSeconds >= StoodFrom {
		d.Lines = append(d.Lines, fmt.Sprintf(
			"pleg-bench itself did not run for %s: it was stopped, or this machine has too few CPUs. The latencies hold that time, which is not the runtime's",
			Seconds(r.StoodSeconds),
		))
	}
	switch {
	case r.OK:
		d.Verdict = r.pass()
		d.Tone = Good
	case len(r.NoVerdict) > 0 && len(r.Failures) == len(r.NoVerdict):
		d.Verdict = "NO VERDICT: " + strings.Join(r.NoVerdict, "; ") + "."
		d.Tone = Neutral
	default:
		d.Verdict = "FAIL: " + strings.Join(r.Failures, "; ") + "."
		d.Notes = r.Consistency.Differences
	}
	if o := r.Outage; o != nil {
		d.Marks = append(d.Marks, Mark{o.AtSeconds, o.AtSeconds + o.DownSeconds, "runtime restart"})
	}
	return d
}

// String is for people.
func (r RuntimeResult) String() string {
	what := r.Name + " " + r.Version
	if r.Profile != "" {
		what = fmt.Sprintf("fake runtime as %s (%s)", r.Profile, what)
	}
	return what
}

// pass is the verdict on a good run. Unseen changes are part of the verdict.
func (r *Result) pass() string {
	pods := Count(r.Consistency.CheckedPods, "pod")
	if r.Consistency.CheckedPods < r.Load.Pods {
		pods += fmt.Sprintf(", of %d that there should be", r.Load.Pods)
	}
	text := fmt.Sprintf(
		"PASS: the cache equals the runtime in all of %s; no event came twice or out of order, and nothing that was seen to begin was left without its end",
		pods,
	)
	if n := r.Events.Unseen; n > 0 {
		text += fmt.Sprintf(
			". %d of %s came and went unseen, between two reads",
			n,
			Count(r.Events.Changes, "change"),
		)
	}
	if r.noEvents() {
		text += ". This runtime offers no events: the PLEG polled"
	}
	return text + "."
}

// enoughForTails is the number of changes from which on a p90 and a p99 differ from the maximum.
const enoughForTails = 100

// table holds the numbers of every generator.
func (r *Result) table() Table {
	var t Table
	columns := []*ComparisonResult{&r.ComparisonResult}
	if r.Comparison != nil {
		columns = append(columns, r.Comparison)
	}
	for _, c := range columns {
		head := c.PLEG.Mode
		if c.noEvents() {
			head = polled
		}
		t.Columns = append(t.Columns, head)
	}
	part := func(of, name, note string, cell func(*ComparisonResult) string) {
		var cells []string
		for _, c := range columns {
			cells = append(cells, cell(c))
		}
		t.Rows = append(t.Rows, Row{
			Of:    of,
			Name:  name,
			Cells: cells,
			Note:  note,
		})
	}
	row := func(name, note string, cell func(*ComparisonResult) string) { part("", name, note, cell) }
	const meanwhile = "while the load ran"
	delays := func(name string, of func(*ComparisonResult) LatencyResult) {
		count := of(&r.ComparisonResult).Count
		for i, q := range []string{"p50", "p90", "p99", "max"} {
			if count < enoughForTails && (i == 1 || i == 2) {
				continue
			}
			part(name, q, "", func(c *ComparisonResult) string {
				if of(c).Count == 0 {
					return "-"
				}
				return of(c).cells()[i]
			})
		}
	}
	delays("from a change to its event", func(c *ComparisonResult) LatencyResult { return c.Latency })
	row(
		"changes never seen",
		"of "+Count(r.Events.Changes, "change"),
		func(c *ComparisonResult) string { return fmt.Sprint(c.Events.Unseen) },
	)
	cpu := meanwhile
	if r.Freshness.Count > 0 {
		delays(
			"GetNewerThan(now) answered",
			func(c *ComparisonResult) LatencyResult { return c.Freshness.LatencyResult },
		)
		cpu = "with " + Count(r.Freshness.Count, "such read")
	}
	row(
		"lists of the whole runtime",
		meanwhile,
		func(c *ComparisonResult) string { return fmt.Sprint(c.Cost.Relists) },
	)
	row(
		"relist period at the end",
		"",
		func(c *ComparisonResult) string { return Seconds(c.PLEG.RelistPeriodSeconds) },
	)
	row("CRI calls", meanwhile, func(c *ComparisonResult) string { return fmt.Sprint(Sum(c.Cost.RPCs)) })
	row("CPU", cpu, func(c *ComparisonResult) string { return Seconds(c.Cost.PLEGCPUSeconds) })
	return t
}

// story holds what the table has not.
func (r *Result) story() (list []string) {
	line := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	emitted := ""
	if n := r.Events.RuntimeEmitted; n != nil {
		emitted = fmt.Sprintf("%d of the runtime, ", *n)
	}
	line(
		"events, those of the set-up included: %s%d received (%d without news), %d delivered on Watch; %d missed, %d owed",
		emitted,
		r.Events.Received,
		r.Events.Stale,
		r.Events.Lifecycle,
		r.Events.Missed,
		r.Events.Owed,
	)
	line(
		"stream: %s, %s; memory: at most %s",
		r.PLEG.State,
		Count(r.PLEG.Reconnects, "reconnect"),
		Bytes(uint64(r.Cost.PLEGMaxRSSBytes)),
	)
	if p := r.PLEG.RelistPeriodSeconds; p > 0 && r.PLEG.State == "Connected" {
		line(
			"trust: %.3g lists a minute now; each list that finds no missed event halves the rate, down to one in 5 minutes",
			60/p,
		)
	}
	if r.Freshness.Count > 0 {
		line("answers older than known: %d of %d", r.Freshness.StaleReads, r.Freshness.Count)
	}
	whom := "the load and the PLEG"
	cpu := "unknown"
	if r.Comparison != nil {
		whom = "the load and both PLEGs"
	}
	if r.Cost.RuntimeCPUSeconds != nil {
		cpu = Seconds(*r.Cost.RuntimeCPUSeconds)
	}
	calls := ""
	if c := r.Load.CallSeconds; c.Count > 0 {
		calls = fmt.Sprintf("; the load's calls took p50 %s, p99 %s", Seconds(c.P50), Seconds(c.P99))
	}
	line("runtime: %s CPU for %s%s", cpu, whom, calls)
	if n := r.Consistency.BeforeRelist; n > 0 {
		line("%s differed until one more relist", Count(n, "pod"))
	}
	if r.Load.Broken > 0 {
		line("load: %s failed and their pods were replaced", Count(r.Load.Broken, "action"))
		for _, method := range sortedKeys(r.Load.Errors) {
			line(
				"  %s failed %s, first: %s",
				method,
				Count(r.Load.Errors[method], "time"),
				r.Load.FirstErrors[method],
			)
		}
	}
	if o := r.Outage; o != nil {
		line(
			"outage: at %s the runtime was restarted, its containers survived; down %s, stream back after %s, whole cache fresh after %s",
			Seconds(o.AtSeconds),
			Seconds(o.DownSeconds),
			or(o.ReconnectedSeconds, "never"),
			or(o.RelistedSeconds, "never"),
		)
	}
	return list
}

// Benchmarks implements [Finding], with a line for each generator.
func (r *Result) Benchmarks() []Benchmark {
	list := []Benchmark{r.ComparisonResult.benchmark()}
	if r.Comparison != nil {
		list = append(list, r.Comparison.benchmark())
	}
	return list
}

func (c *ComparisonResult) benchmark() Benchmark {
	figures := slices.Concat(c.Latency.figures(""), c.Freshness.figures("fresh-"))
	for unit, v := range map[string]float64{
		"cpu-sec":   c.Cost.PLEGCPUSeconds,
		"rss-bytes": float64(c.Cost.PLEGMaxRSSBytes),
		"lists":     float64(c.Cost.Relists),
		"reads":     float64(c.Cost.Inspections),
		"calls":     float64(Sum(c.Cost.RPCs)),
		"missed":    float64(c.Events.Missed),
		"unseen":    float64(c.Events.Unseen),
	} {
		figures = append(figures, Figure{v, unit})
	}
	slices.SortFunc(figures, func(a, b Figure) int { return strings.Compare(a.Unit, b.Unit) })
	return Benchmark{"Run/mode=" + c.PLEG.Mode, figures}
}

// Unmeasured implements [Finding].
func (r *Result) Unmeasured() (paths []string) {
	for path, c := range map[string]*ComparisonResult{"": &r.ComparisonResult, "comparison.": r.Comparison} {
		if c != nil && (c.PLEG.Mode != evented || c.noEvents()) {
			paths = append(
				paths,
				path+"events.missed",
				path+"events.received",
				path+"events.stale",
				path+"events.replayed",
				path+"pleg.overruled",
			)
		}
		if c != nil && c.Freshness.Count == 0 {
			paths = append(paths, path+"freshness_seconds")
		}
	}
	if r.Events.Changes == 0 {
		paths = append(paths, "events.unseen", "events.undelivered")
	}
	if r.Consistency.CheckedPods == 0 {
		paths = append(paths, "consistency")
	}
	return paths
}

func or(s float64, none string) string {
	if s == 0 {
		return none
	}
	return Seconds(s)
}

// Sum adds the values up.
func Sum[N int | uint64](m map[string]N) (n N) {
	for _, v := range m {
		n += v
	}
	return n
}

// Count writes a number with its noun. The plural defaults to the noun with an s.
func Count(n int, noun string, plural ...string) string {
	switch {
	case n == 1:
	case len(plural) > 0:
		noun = plural[0]
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Counts lists what was counted, sorted by name.
func Counts[K ~string](m map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}

// Seconds writes a duration given in seconds as [Short] does.
func Seconds(s float64) string { return Short(time.Duration(s * float64(time.Second))) }

// Short writes a duration with about three digits.
func Short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return digits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return digits(d.Seconds()) + " s"
}

func digits(f float64) string {
	switch {
	case f < 9.995:
		return strings.TrimSuffix(fmt.Sprintf("%.2f", f), ".00")
	case f < 99.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	return fmt.Sprintf("%.0f", f)
}

// Bytes writes a size with a unit.
func Bytes(n uint64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
