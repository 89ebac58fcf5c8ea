// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	inbench "github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/picture"
)

// colors of the contestants, chosen so that they differ for the color-blind too.
var colors = map[string]color.NRGBA{
	floorName: {0x70, 0x70, 0x70, 0xff}, generated: {0xb8, 0x7d, 0x00, 0xff},
	oursName: {0x00, 0x72, 0xb2, 0xff}, kubelet136: {0xd5, 0x5e, 0x00, 0xff},
}

// plot draws how the CPU of one list of an unchanged node grows with its containers, on two logarithmic axes.
func (b *bench) plot(w io.Writer) error {
	lines := make(map[string]plotter.XYs)
	for i := range b.results {
		r := &b.results[i]
		var containers float64
		if r.Row != "growth" {
			continue
		}
		if _, err := fmt.Sscanf(r.Case, "containers=%f", &containers); err == nil {
			lines[r.Agent] = append(lines[r.Agent], plotter.XY{X: containers, Y: r.median(unitCPU) / float64(time.Second)})
		}
	}
	f := picture.New("CPU of one list of everything when nothing has changed",
		"user + system of the agent's process, median; 2 containers a pod, 1.5 KB each, unix socket; both axes are logarithmic",
		"containers on the node")
	low, high := plotter.XY{X: math.Inf(1), Y: math.Inf(1)}, plotter.XY{}
	for _, name := range []string{kubelet136, generated, oursName, floorName} {
		line := lines[name]
		if len(line) == 0 {
			continue
		}
		slices.SortFunc(line, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		ink := colors[name]
		stroke := draw.LineStyle{Color: ink, Width: vg.Points(1.8)}
		f.Add(&plotter.Line{XYs: line, LineStyle: stroke}, picture.Dots(line, ink, 2.6))
		end := line[len(line)-1]
		short := inbench.Short(time.Duration(end.Y * float64(time.Second)))
		f.Key = append(f.Key, picture.Entry{Name: fmt.Sprintf("%s: %s at %.0f", name, short, end.X), Color: ink})
		for _, at := range line {
			low, high = plotter.XY{X: min(low.X, at.X), Y: min(low.Y, at.Y)}, plotter.XY{X: max(high.X, at.X), Y: max(high.Y, at.Y)}
		}
	}
	if len(f.Key) == 0 {
		return fmt.Errorf("draw row growth: it was not measured (-rows growth)")
	}
	picture.Logarithmic(&f.X, picture.Decades(func(v float64) string { return fmt.Sprintf("%.0f", v) }), low.X, high.X)
	picture.Logarithmic(&f.Y, picture.Durations, low.Y, high.Y)
	return f.Write(w, 900, 500)
}
