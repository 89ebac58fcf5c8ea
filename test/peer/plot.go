// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// point is one measurement of row growth.
type point struct{ x, y float64 }

// The picture, in pixels, and what its axes span: containers, and nanoseconds of CPU.
const (
	width, height                    = 860, 520
	left, right, top, bottom         = 80, 190, 56, 60
	minX, maxX, minY, maxY   float64 = 100, 100_000, 1e4, 1e9
)

// colours of the contestants, chosen so that they differ for the colour-blind too.
var colours = map[string]string{floorName: "#7f7f7f", generated: "#e69f00", oursName: "#0072b2", kubelet136: "#d55e00"}

// plot draws how the CPU of one list of an unchanged node grows with its containers, on two logarithmic axes.
func (b *bench) plot(w io.Writer) error {
	lines := make(map[string][]point)
	for i := range b.results {
		r := &b.results[i]
		var containers float64
		if r.Row != "growth" {
			continue
		}
		if _, err := fmt.Sscanf(r.Case, "containers=%f", &containers); err == nil {
			lines[r.Agent] = append(lines[r.Agent], point{containers, r.median(unitCPU)})
		}
	}
	x := func(v float64) float64 {
		return left + (width-left-right)*math.Log(v/minX)/math.Log(maxX/minX)
	}
	y := func(v float64) float64 {
		return height - bottom - (height-top-bottom)*math.Log(v/minY)/math.Log(maxY/minY)
	}
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, width, height)
	p(`<rect width="%d" height="%d" fill="white"/>`, width, height)
	p(`<text x="%d" y="24" font-size="16">CPU of one list of everything when nothing has changed</text>`, left)
	p(`<text x="%d" y="42" fill="#555">user + system of the agent's process, median; 2 containers a pod, 1.5 KB each, unix socket</text>`, left)
	for v := minX; v <= maxX; v *= 10 {
		p(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`, x(v), top, x(v), height-bottom)
		p(`<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`, x(v), height-bottom+18, v)
	}
	for v := minY; v <= maxY*1.01; v *= 10 {
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`, left, y(v), width-right, y(v))
		p(`<text x="%d" y="%.1f" text-anchor="end">%v</text>`, left-8, y(v)+4, time.Duration(math.Round(v)))
	}
	p(`<text x="%d" y="%d" text-anchor="middle">containers on the node</text>`, (left+width-right)/2, height-16)
	var labels []float64
	for _, name := range []string{kubelet136, generated, oursName, floorName} {
		line := lines[name]
		if len(line) == 0 {
			continue
		}
		slices.SortFunc(line, func(a, b point) int { return int(a.x - b.x) })
		var path strings.Builder
		for i, at := range line {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(at.x), y(at.y))
		}
		p(`<path d="%s" fill="none" stroke="%s" stroke-width="2.5"/>`, path.String(), colours[name])
		for _, at := range line {
			p(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s, %.0f containers: %v</title></circle>`,
				x(at.x), y(at.y), colours[name], name, at.x, time.Duration(at.y).Round(10*time.Microsecond))
		}
		end := line[len(line)-1]
		label := fmt.Sprintf("%s: %v", name, time.Duration(end.y).Round(100*time.Microsecond))
		if end.x < maxX { // above the last point, away from the other lines
			p(`<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%s at %.0f</text>`, x(end.x), y(end.y)-12, colours[name], label, end.x)
			continue
		}
		at := y(end.y) + 4
		for _, other := range labels {
			if math.Abs(at-other) < 16 {
				at = other + 16
			}
		}
		labels = append(labels, at)
		p(`<text x="%.1f" y="%.1f" fill="%s">%s</text>`, x(end.x)+10, at, colours[name], label)
	}
	p(`</svg>`)
	return nil
}
