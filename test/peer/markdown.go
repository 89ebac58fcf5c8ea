// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// shown are the units that the tables of docs/performance.md show, by row.
var shown = map[string][]string{
	"relist":    {unitCPU, unitBytes, unitObjects},
	"streaming": {unitCPU, unitBytes},
	"changed":   {unitCPU, unitObjects},
	"intake":    {unitCPU, unitRate, unitBytes, unitObjects},
	"first":     {unitWall, unitCPU},
	"newer":     {unitP50, unitP99},
	"latency":   {unitP50, unitP99, "lost"},
	"memory":    {unitHeap},
	"idle":      {unitTotal, unitCPU, unitObjects, unitWakeups},
	"growth":    {unitCPU},
}

// markdown prints the medians as a table for docs/performance.md: a line for each measure of each case, a column for each contestant, and the
// last one says how many times ours the kubelet's is.
func (b *bench) markdown(w io.Writer) error {
	fmt.Fprint(w, "| row, case | measure |")
	for _, name := range everybody {
		fmt.Fprintf(w, " %s |", name)
	}
	fmt.Fprintf(w, " %s : ours |\n|---|---|%s---|\n", kubelet136, strings.Repeat("---|", len(everybody)))
	done := make(map[string]bool)
	for _, r := range b.results {
		key := r.Row + ", " + strings.ReplaceAll(strings.ReplaceAll(r.Case, "/", ", "), "=", " ")
		if done[key] {
			continue
		}
		done[key] = true
		for _, unit := range shown[r.Row] {
			values := make(map[string]float64)
			for _, name := range everybody {
				values[name] = b.median(r.Row, r.Case, name, unit)
			}
			fmt.Fprintf(w, "| %s | %s |", key, measure(unit))
			for _, name := range everybody {
				fmt.Fprintf(w, " %s |", plain(unit, values[name]))
			}
			ratio := ""
			if x := values[kubelet136] / values[oursName]; !math.IsNaN(x) && !math.IsInf(x, 0) {
				ratio = fmt.Sprintf("%.3g", x)
			}
			if _, err := fmt.Fprintf(w, " %s |\n", ratio); err != nil {
				return err
			}
		}
	}
	if err := b.beforeMarkdown(w); err != nil {
		return err
	}
	return b.churnMarkdown(w)
}

// median returns that of one result; not a number if there is none.
func (b *bench) median(row, what, name, unit string) float64 {
	for i := range b.results {
		if r := &b.results[i]; r.Row == row && r.Case == what && (r.Agent == name || r.Agent == name+streaming) {
			return r.median(unit)
		}
	}
	return math.NaN()
}

// measure names a unit for people.
func measure(unit string) string {
	switch unit {
	case unitCPU:
		return "CPU"
	case unitTotal:
		return "CPU of agent + runtime"
	case unitWall:
		return "time"
	case unitBytes:
		return "allocated"
	case unitObjects:
		return "objects"
	case unitWakeups:
		return "wakeups"
	case unitHeap:
		return "heap per container"
	case unitRate:
		return "events a second"
	case unitP50, unitP99, unitMax:
		return strings.TrimSuffix(unit, "-ns")
	case "lost":
		return "changes nobody told"
	}
	return unit
}

// plain writes a value for people; nothing if it is not a number.
func plain(unit string, v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case strings.HasPrefix(unit, "B/"):
		switch {
		case v >= 1e6:
			return fmt.Sprintf("%.3g MB", v/1e6)
		case v >= 1e4:
			return fmt.Sprintf("%.3g kB", v/1e3)
		}
		return fmt.Sprintf("%.0f B", v)
	case strings.Contains(unit, "ns"):
		switch {
		case v >= 1e9:
			return fmt.Sprintf("%.3g s", v/1e9)
		case v >= 1e6:
			return fmt.Sprintf("%.3g ms", v/1e6)
		case v >= 1e3:
			return fmt.Sprintf("%.3g µs", v/1e3)
		}
		return time.Duration(v).String()
	case v >= 1e6:
		return fmt.Sprintf("%.3g M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3g k", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}
