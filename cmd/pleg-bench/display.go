// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
)

// display shows the progress of a run in a few lines, written over and over. It shows nothing if
// standard error is no terminal.
type display struct {
	w     io.Writer
	width int

	mu    sync.Mutex // owns lines
	lines int        // on the screen now
}

func newDisplay(s streams) *display { return &display{w: s.err, width: s.terminal()} }

// show writes the status over the status before.
func (d *display) show(s run.Status) {
	if d.width == 0 {
		return
	}
	lines := []string{progressLine(s, d.width)}
	for _, side := range s.Sides {
		p := side.Progress
		latency := "-"
		if side.Latency.Count > 0 {
			latency = fmt.Sprintf("p50 %s p99 %s", bench.Short(side.Latency.P50), bench.Short(side.Latency.P99))
		}
		line := fmt.Sprintf("%s %s  %-22s lists %d (%s)  told %d  missed %d", side.Mode, p.State, latency,
			p.Counts.Relists, bench.Short(p.RelistPeriod), p.Counts.Events, p.Counts.Missed)
		if p.Counts.Owed > 0 {
			line += fmt.Sprintf("  owed %d", p.Counts.Owed)
		}
		lines = append(lines, line)
	}
	d.draw(lines)
}

// progressLine is the phase, and a bar while the load runs.
func progressLine(s run.Status, width int) string {
	if s.Total == 0 {
		return s.Phase + " …"
	}
	const barWidth = 30
	done := min(int(barWidth*s.Elapsed/s.Total), barWidth)
	line := fmt.Sprintf("%s  %s%s  %s of %s  %d changes", s.Phase, strings.Repeat("█", done), strings.Repeat("░", barWidth-done),
		bench.Short(s.Elapsed.Round(100_000_000)), bench.Short(s.Total), s.Changes)
	if s.Behind > 1_000_000_000 {
		line += fmt.Sprintf("  (%s behind: the runtime is slower than the rate)", bench.Short(s.Behind))
	}
	return line
}

// clear takes the status off the screen.
func (d *display) clear() {
	if d.width > 0 {
		d.draw(nil)
	}
}

func (d *display) draw(lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	if d.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", d.lines)
	}
	for _, line := range lines {
		b.WriteString(cut(line, d.width-1) + "\n")
	}
	d.lines = len(lines)
	_, _ = io.WriteString(d.w, b.String())
}

// cut shortens a line to a number of characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(n-1, 0)]) + "…"
}
