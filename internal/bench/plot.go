// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	plotWidth, plotHeight = 900, 420
	plotLeft, plotRight   = 80, 20
	plotTop, plotBottom   = 56, 44
	// plotMost bounds the dots of a series: more would only cover each other.
	plotMost = 4000
)

var plotColors = []string{"#1f6feb", "#d1495b", "#3a7d44", "#8a5fbf"}

// WritePlot writes a picture (SVG) of when every change happened and how long it took until Watch told of it, on a logarithmic scale.
func (r *Result) WritePlot(w io.Writer) error {
	span := seconds(r.Load.DurationSeconds)
	low, high := 100*time.Microsecond, time.Second
	for _, s := range r.Series {
		for _, p := range s.Points {
			span = max(span, p.At)
			high = max(high, p.Latency)
		}
	}
	decades := math.Ceil(math.Log10(float64(high) / float64(low)))
	x := func(at time.Duration) float64 {
		return plotLeft + float64(at)/float64(span)*(plotWidth-plotLeft-plotRight)
	}
	y := func(d time.Duration) float64 {
		share := math.Log10(float64(max(d, low))/float64(low)) / decades
		return plotHeight - plotBottom - share*(plotHeight-plotTop-plotBottom)
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	title := fmt.Sprintf("Change in the runtime → event on Watch: %s %s, %d pods × %d containers, %.0f changes/s",
		r.Runtime.Name, r.Runtime.Version, r.Load.Pods, r.Load.Containers, r.Load.AchievedRate)
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="14">%s</text>`+"\n", plotLeft, html.EscapeString(title))
	for i := range int(decades) + 1 {
		d := low * time.Duration(math.Pow10(i))
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, plotWidth-plotRight, y(d), y(d), plotLeft-8, y(d)+4, Short(d))
	}
	for i := range 11 {
		at := span * time.Duration(i) / 10
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(at), plotHeight-plotBottom+18, Short(at.Round(100*time.Millisecond)))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">time of the change</text>`+"\n", plotWidth/2, plotHeight-8)
	for i, s := range r.Series {
		color := plotColors[i%len(plotColors)]
		var all []time.Duration
		for _, p := range s.Points {
			all = append(all, p.Latency)
		}
		q := Summarize(all)
		fmt.Fprintf(&b, `<text x="%d" y="40" fill="%s">● %s: p50 %s, p99 %s</text>`+"\n", plotLeft+i*260, color, html.EscapeString(s.Mode), Short(q.P50), Short(q.P99))
		fmt.Fprintf(&b, `<g fill="%s" fill-opacity="0.5">`+"\n", color)
		points := slices.SortedFunc(slices.Values(s.Points), func(a, b Point) int { return int(a.At - b.At) })
		step := len(points)/plotMost + 1
		for j := 0; j < len(points); j += step {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="2"/>`, x(points[j].At), y(points[j].Latency))
		}
		b.WriteString("\n</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
