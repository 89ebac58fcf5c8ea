// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// mostDots bounds the dots of a series: more would only cover each other.
const mostDots = 4000

var seriesColors = []color.NRGBA{{0x1f, 0x6f, 0xeb, 0xff}, {0xd1, 0x49, 0x5b, 0xff}, {0x3a, 0x7d, 0x44, 0xff}, {0x8a, 0x5f, 0xbf, 0xff}}

// Latency draws when every change of a run happened and how long it took until Watch told of it, on a
// logarithmic scale, with restarts of the runtime and pauses of Watch's consumer.
func Latency(w io.Writer, r *bench.Result) error {
	p := New("How long after a change in the runtime Watch told of it (logarithmic)", subtitle(r), "time of the change, in seconds")
	p.X.Min, p.X.Max, p.X.Tick.Marker = 0, r.Load.DurationSeconds, Numbers
	low, high := time.Millisecond, time.Second
	var notes []string
	for i, s := range r.Series {
		points, left := drawn(s)
		for _, at := range s.Points {
			p.X.Max = max(p.X.Max, at.At.Seconds())
			if at.Latency > 0 {
				low, high = min(low, at.Latency), max(high, at.Latency)
			}
		}
		ink := seriesColors[i%len(seriesColors)]
		p.Add(Dots(points, ink, 1.6))
		p.Key = append(p.Key, Entry{caption(s), ink})
		notes = append(notes, left...)
	}
	Logarithmic(&p.Y, Durations, low.Seconds(), high.Seconds())
	for _, m := range moments(r) {
		p.Add(m)
		p.X.Max = max(p.X.Max, m.end)
	}
	if len(notes) > 0 {
		p.X.Label.Text += " (" + strings.Join(notes, "; ") + ")"
	}
	return p.Write(w, 900, 440)
}

// subtitle says what was done to which runtime.
func subtitle(r *bench.Result) string {
	name := r.Runtime.Name + " " + r.Runtime.Version
	if r.Runtime.Profile != "" {
		name = "fake runtime as " + r.Runtime.Profile
	}
	text := fmt.Sprintf("%s, %d pods × %d containers, %.0f changes/s; each dot is a change",
		name, r.Load.Pods, r.Load.Containers, r.Load.AchievedRate)
	if len(r.Load.Faults) > 0 {
		text += "; faults " + strings.Join(r.Load.Faults, " ")
	}
	return text
}

// caption names a series and its quantiles.
func caption(s bench.Series) string {
	var all []time.Duration
	for _, p := range s.Points {
		all = append(all, p.Latency)
	}
	if len(all) == 0 {
		return s.Mode + ": nothing told"
	}
	q := bench.Summarize(all)
	return fmt.Sprintf("%s: p50 %s, p99 %s", s.Mode, bench.Short(q.P50), bench.Short(q.P99))
}

// drawn returns the points of a series that are drawn, of very many every nth, and says what is not.
func drawn(s bench.Series) (points plotter.XYs, left []string) {
	sorted := slices.SortedFunc(slices.Values(s.Points), func(a, b bench.Point) int { return cmp.Compare(a.At, b.At) })
	sorted = slices.DeleteFunc(sorted, func(p bench.Point) bool { return p.Latency <= 0 })
	if n := len(s.Points) - len(sorted); n > 0 {
		left = append(left, fmt.Sprintf("%d changes of %s took no time that the clock shows", n, s.Mode))
	}
	step := len(sorted)/mostDots + 1
	if step > 1 {
		left = append(left, fmt.Sprintf("%s: one dot for %d changes", s.Mode, step))
	}
	for i := 0; i < len(sorted); i += step {
		points = append(points, plotter.XY{X: sorted[i].At.Seconds(), Y: sorted[i].Latency.Seconds()})
	}
	return points, left
}

// moment is a time during which something was done to the runtime or to the generator. It is a
// plot.Plotter: a shade over the whole height, with its name.
type moment struct {
	name       string
	begin, end float64 // in seconds
}

// moments are those of a run.
func moments(r *bench.Result) (list []moment) {
	if o := r.Outage; o != nil {
		list = append(list, moment{"runtime " + o.Kind, o.AtSeconds, o.AtSeconds + o.DownSeconds})
	}
	if s := r.Stall; s != nil {
		list = append(list, moment{"Watch not read", s.AtSeconds, s.AtSeconds + s.ForSeconds})
	}
	return list
}

// Plot draws the moment.
func (m moment) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	shade, edge := color.NRGBA{0xf0, 0xa0, 0x20, 0x40}, color.NRGBA{0xa0, 0x60, 0x00, 0xff}
	left, right := x(m.begin), max(x(m.end), x(m.begin)+vg.Points(1))
	c.FillPolygon(shade, []vg.Point{
		{X: left, Y: c.Min.Y}, {X: right, Y: c.Min.Y}, {X: right, Y: c.Max.Y}, {X: left, Y: c.Max.Y},
	})
	style := p.X.Tick.Label
	style.Color, style.XAlign, style.YAlign = edge, draw.XLeft, draw.YTop
	at := vg.Point{X: left + vg.Points(2), Y: c.Min.Y + style.Font.Size + vg.Points(3)}
	if at.X+style.Width(m.name) > c.Max.X {
		style.XAlign, at.X = draw.XRight, left-vg.Points(2)
	}
	c.StrokeLine2(draw.LineStyle{Color: edge, Width: vg.Points(0.5)}, left, c.Min.Y, left, c.Max.Y)
	c.FillText(style, at, m.name)
}
