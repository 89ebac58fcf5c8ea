// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is what a run measured. Its JSON form is stable.
type Report struct {
	Load         string  `json:"load"`
	Recorder     string  `json:"recorder"`
	Fault        string  `json:"fault"`
	FaultSeconds float64 `json:"faultSeconds,omitempty"`
	Nodes        int     `json:"nodes"`
	// Emitted is how many events there were, Stored how many the server's objects tell of, and Objects how many of these there are.
	Emitted int64 `json:"emitted"`
	Stored  int64 `json:"stored"`
	Objects int   `json:"objects"`
	// Counted is what the recorder itself says that it dropped, by reason; nil if it does not say.
	Counted map[string]int64 `json:"counted"`
	// Unsent is what the shutdown reported as left; it is part of Counted.
	Unsent int64 `json:"unsent"`
	// Silent is what was emitted and is neither stored nor counted as dropped.
	Silent int64 `json:"silentlyLost"`

	Calls              int64            `json:"calls"`
	FailedCalls        int64            `json:"failedCalls"`
	Methods            map[string]int64 `json:"methods"`
	CallsPerSecondPeak int64            `json:"callsPerSecondPeak"`

	NanosPerEvent  float64 `json:"nanosPerEvent"`
	AllocsPerEvent float64 `json:"allocsPerEvent"` // of the whole process during the load
	// HeapPeakMiB and GoroutinesPeak are of the process, the embedded server included.
	HeapPeakMiB      float64 `json:"heapPeakMiB"`
	GoroutinesBefore int     `json:"goroutinesBefore"`
	GoroutinesPeak   int     `json:"goroutinesPeak"`

	LoadSeconds  float64 `json:"loadSeconds"`
	TotalSeconds float64 `json:"totalSeconds"`
}

// Exact reports whether the server knows of every event.
func (r *Report) Exact() bool { return r.Stored == r.Emitted }

func (r *Report) count(targets []*target) {
	lost := r.Emitted - r.Stored
	for _, t := range targets {
		if t.dropped == nil {
			continue
		}
		if r.Counted == nil {
			r.Counted = map[string]int64{}
		}
		for reason, n := range t.dropped() {
			r.Counted[reason] += n
			lost -= n
		}
	}
	r.Silent = max(lost, 0)
}

// WriteText writes runs side by side, a column each.
func WriteText(w io.Writer, runs ...*Report) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(r *Report) string) {
		fmt.Fprintf(tw, "%s\t", name)
		for _, r := range runs {
			fmt.Fprintf(tw, "%s\t", cell(r))
		}
		fmt.Fprintln(tw)
	}
	row("", func(r *Report) string { return r.Recorder })
	row("load", func(r *Report) string {
		if r.Fault != FaultNone {
			return fmt.Sprintf("%s, %s for %.0fs", r.Load, r.Fault, r.FaultSeconds)
		}
		return r.Load
	})
	row("nodes", func(r *Report) string { return fmt.Sprint(r.Nodes) })
	row("events emitted", func(r *Report) string { return fmt.Sprint(r.Emitted) })
	row("stored count", func(r *Report) string { return fmt.Sprint(r.Stored) })
	row("stored objects", func(r *Report) string { return fmt.Sprint(r.Objects) })
	row("lost, counted", func(r *Report) string { return counted(r.Counted) })
	row("lost silently", func(r *Report) string { return fmt.Sprint(r.Silent) })
	row("API calls", func(r *Report) string { return fmt.Sprint(r.Calls) })
	row("of these failed", func(r *Report) string { return fmt.Sprint(r.FailedCalls) })
	row("calls/s, peak", func(r *Report) string { return fmt.Sprint(r.CallsPerSecondPeak) })
	row("ns per event", func(r *Report) string { return fmt.Sprintf("%.0f", r.NanosPerEvent) })
	row("allocations per event", func(r *Report) string { return fmt.Sprintf("%.2f", r.AllocsPerEvent) })
	row("memory, peak", func(r *Report) string { return fmt.Sprintf("%.0f MiB", r.HeapPeakMiB) })
	row("goroutines, peak", func(r *Report) string { return fmt.Sprint(r.GoroutinesPeak) })
	row("seconds", func(r *Report) string { return fmt.Sprintf("%.1f", r.TotalSeconds) })
	return tw.Flush()
}

func counted(m map[string]int64) string {
	if m == nil {
		return "not counted"
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}
