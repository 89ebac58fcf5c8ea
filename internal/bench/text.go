// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// WriteText writes the result for people.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	what := r.Runtime.Name + " " + r.Runtime.Version
	if r.Runtime.Profile != "" {
		what = fmt.Sprintf("fake runtime as %s (%s)", r.Runtime.Profile, what)
	}
	fmt.Fprintf(&b, "%s\n", what)
	head := fmt.Sprintf("%s × %s, %.3g changes/s for %s, seed %d", Count(r.Load.Pods, "pod"), Count(r.Load.Containers, "container"), r.Load.AchievedRate,
		Short(seconds(r.Load.DurationSeconds)), r.Load.Seed)
	if len(r.Load.Faults) > 0 {
		head += ", faults " + strings.Join(r.Load.Faults, " ")
	}
	b.WriteString(Fold(head, 2) + "\n\n")
	r.writeTable(&b)
	r.writeStory(&b)
	switch {
	case r.OK:
		b.WriteString("\n" + Fold(r.pass(), 6) + "\n")
	default:
		verdict := "FAIL"
		if r.Interrupted && len(r.Failures) == 1 {
			verdict = "NO VERDICT"
		}
		b.WriteString("\n" + Fold(fmt.Sprintf("%s: %s.", verdict, strings.Join(r.Failures, "; ")), 6) + "\n")
		for _, d := range r.Consistency.Differences {
			b.WriteString(Fold("  "+d, 4) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// pass is the verdict on a good run. What nobody saw is not hidden by it.
func (r *Result) pass() string {
	text := "PASS: the cache equals the runtime; no event came twice or out of order, and nothing that was seen to begin was left without its end"
	if n := r.Events.Unseen; n > 0 {
		text += fmt.Sprintf(". %d of %d changes came and went unseen, between two reads", n, r.Events.Changes)
	}
	return text + "."
}

// enoughForTails is the number of changes from which on a p90 and a p99 differ from the maximum.
const enoughForTails = 100

// writeTable writes what both modes have, side by side if there is a comparison.
func (r *Result) writeTable(b *strings.Builder) {
	columns := []*ComparisonResult{&r.ComparisonResult}
	if r.Comparison != nil {
		columns = append(columns, r.Comparison)
	}
	row := func(name string, cell func(*ComparisonResult) string, note string) {
		fmt.Fprintf(b, "  %-33s", name)
		for _, c := range columns {
			fmt.Fprintf(b, "%10s", cell(c))
		}
		if note != "" {
			b.WriteString("  " + note)
		}
		b.WriteByte('\n')
	}
	at := func(pick func(LatencyResult) float64) func(*ComparisonResult) string {
		return func(c *ComparisonResult) string {
			if c.Latency.Count == 0 {
				return "-"
			}
			return Short(seconds(pick(c.Latency)))
		}
	}
	fresh := func(pick func(LatencyResult) float64) func(*ComparisonResult) string {
		return func(c *ComparisonResult) string {
			if c.Freshness.Count == 0 {
				return "-"
			}
			return Short(seconds(pick(c.Freshness.LatencyResult)))
		}
	}
	number := func(pick func(*ComparisonResult) int) func(*ComparisonResult) string {
		return func(c *ComparisonResult) string { return fmt.Sprint(pick(c)) }
	}
	row("", func(c *ComparisonResult) string { return c.PLEG.Mode }, "")
	row("change told on Watch after    p50", at(func(l LatencyResult) float64 { return l.P50 }), "")
	if r.Latency.Count >= enoughForTails {
		row("                              p90", at(func(l LatencyResult) float64 { return l.P90 }), "")
		row("                              p99", at(func(l LatencyResult) float64 { return l.P99 }), "")
	}
	row("                              max", at(func(l LatencyResult) float64 { return l.Max }), "")
	row("changes that nobody saw", number(func(c *ComparisonResult) int { return c.Events.Unseen }),
		fmt.Sprintf("of %d changes", r.Events.Changes))
	if r.Freshness.Count > 0 {
		row("GetNewerThan(now) answered    p50", fresh(func(l LatencyResult) float64 { return l.P50 }), "")
		row("                              p99", fresh(func(l LatencyResult) float64 { return l.P99 }), fmt.Sprintf("of %d reads", r.Freshness.Count))
	}
	row("lists of the whole runtime", number(func(c *ComparisonResult) int { return c.Cost.Relists }), "while the load ran")
	row("relist period at the end", func(c *ComparisonResult) string { return Short(seconds(c.PLEG.RelistPeriodSeconds)) }, "")
	row("CRI calls", number(func(c *ComparisonResult) int { return sum(c.Cost.RPCs) }), "while the load ran")
	note := "while the load ran"
	if r.Freshness.Count > 0 {
		note = "GetNewerThan included"
	}
	row("CPU", func(c *ComparisonResult) string { return Short(seconds(c.Cost.PLEGCPUSeconds)) }, note)
}

// writeStory writes what only this run has.
func (r *Result) writeStory(b *strings.Builder) {
	line := func(format string, args ...any) { b.WriteString(Fold(fmt.Sprintf(format, args...), 2) + "\n") }
	emitted := "the PLEG"
	if n := r.Events.RuntimeEmitted; n != nil {
		emitted = fmt.Sprintf("the runtime emitted %d, the PLEG", *n)
	}
	b.WriteByte('\n')
	line("events: %s received %d (%d told nothing new), told %d on Watch; missed %d, owed %d",
		emitted, r.Events.Received, r.Events.Stale, r.Events.Lifecycle, r.Events.Missed, r.Events.Owed)
	line("stream: %s, %d reconnects; memory: at most %s", r.PLEG.State, r.PLEG.Reconnects, Bytes(uint64(r.Cost.PLEGMaxRSSBytes)))
	if r.Freshness.Count > 0 {
		line("answers older than known: %d of %d", r.Freshness.StaleReads, r.Freshness.Count)
	}
	if p := r.PLEG.RelistPeriodSeconds; p > 0 && r.PLEG.State == "Connected" {
		line("trust: %.3g lists a minute now; each list that finds nothing which the stream had not told halves that, down to one in 5 minutes", 60/p)
	}
	whom, cpu := "the load and the PLEG", "unknown"
	if r.Comparison != nil {
		whom = "the load and both PLEGs"
	}
	if r.Cost.RuntimeCPUSeconds != nil {
		cpu = Short(seconds(*r.Cost.RuntimeCPUSeconds))
	}
	line("runtime: %s CPU for %s; its calls took p50 %s, p99 %s", cpu, whom,
		Short(seconds(r.Load.CallSeconds.P50)), Short(seconds(r.Load.CallSeconds.P99)))
	if n := r.Consistency.BeforeRelist; n > 0 {
		line("%d pods differed until one more relist", n)
	}
	if r.Load.Broken > 0 {
		line("load: %d actions failed (calls: %s) and their pods were replaced", r.Load.Broken, counts(r.Load.Errors))
	}
	if o := r.Outage; o != nil {
		verb := map[string]string{"restart": "restarted, its containers survived", "kill": "killed, everything in it was lost"}[o.Kind]
		line("outage: at %s the runtime was %s; down %s, stream back after %s, whole cache fresh after %s", Short(seconds(o.AtSeconds)), verb,
			Short(seconds(o.DownSeconds)), or(o.ReconnectedSeconds, "never"), or(o.RelistedSeconds, "never"))
	}
	if s := r.Stall; s != nil {
		line("stall: Watch was not read for %s; %d events became PodSyncs of at most %d pods; the runtime's calls took p99 %s before and %s during; heap %s before, %s at most, %s after",
			Short(seconds(s.ForSeconds)), s.OwedEvents, s.OwedPods, Short(seconds(s.CallSecondsBefore.P99)), Short(seconds(s.CallSecondsDuring.P99)),
			Bytes(s.HeapBytesBefore), Bytes(s.HeapBytesPeak), Bytes(s.HeapBytesAfter))
	}
}

func or(s float64, none string) string {
	if s == 0 {
		return none
	}
	return Short(seconds(s))
}

func counts(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(parts, ", ")
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// Count writes a number and the noun of what is counted. The plural is the noun with an s by default.
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
