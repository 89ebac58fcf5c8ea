// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

var (
	ink  = color.Gray{Y: 0x24}
	dim  = color.Gray{Y: 0x59}
	rule = color.Gray{Y: 0xdd}
)

// sans is the font that widths are reckoned with. Write names more, for readers that lack it.
func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// Figure is a plot with its heading, which stands above the plot.
type Figure struct {
	*plot.Plot
	Title, Subtitle string
	Key             []Entry
}

// Entry names what is drawn in a color.
type Entry struct {
	Name  string
	Color color.Color
}

// New returns an empty figure. The vertical axis has no name: gonum's plot makes room for one in the
// wrong place if the axis is logarithmic, so that the title has to say what it shows.
func New(title, subtitle, x string) *Figure {
	p := plot.New()
	p.X.Label.Text, p.X.Label.TextStyle.Font, p.X.Label.TextStyle.Color = x, sans(9), dim
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Tick.Label.Font, axis.Tick.Label.Color = sans(9), ink
		axis.Color, axis.Tick.Color = dim, dim
		axis.Padding = vg.Points(3)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = rule, rule
	p.Add(grid)
	return &Figure{Plot: p, Title: title, Subtitle: subtitle}
}

// heading draws the title, the subtitle and the key at the top, and returns what is left below.
func (f *Figure) heading(c draw.Canvas) draw.Canvas {
	style := text.Style{Color: ink, Font: sans(12), YAlign: draw.YTop, Handler: f.TextHandler}
	line := func(what string, size vg.Length, ink color.Color) {
		style.Font, style.Color = sans(size), ink
		c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y}, what)
		c.Max.Y -= size * 1.4
	}
	line(f.Title, 12, ink)
	line(f.Subtitle, 9, dim)
	at, size := c.Min.X, vg.Length(9)
	for _, e := range f.Key {
		style.Font, style.Color = sans(size), e.Color
		c.DrawGlyph(draw.GlyphStyle{Color: e.Color, Radius: 3, Shape: draw.CircleGlyph{}}, vg.Point{X: at + 3, Y: c.Max.Y - 0.6*size})
		c.FillText(style, vg.Point{X: at + 10, Y: c.Max.Y}, e.Name)
		at += 10 + 1.1*style.Width(e.Name) + 18 // a reader's font may be wider
	}
	c.Max.Y -= size * 1.8
	return c
}

// Durations are the ticks of a logarithmic axis in seconds: each power of ten with its unit, and bare
// ticks between them.
var Durations = Decades(func(v float64) string {
	return bench.Short(time.Duration(math.Round(v * float64(time.Second))))
})

// Decades are the ticks of a logarithmic axis: each power of ten as name shows it, and bare ticks at two
// to nine times of these.
func Decades(name func(v float64) string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		for exponent := int(math.Floor(math.Log10(low))); ; exponent++ {
			for digit := 1.0; digit < 10; digit++ {
				v := digit * math.Pow10(exponent)
				switch {
				case v > high*(1+1e-9):
					return ticks
				case digit == 1:
					ticks = append(ticks, plot.Tick{Value: v, Label: name(v)})
				default:
					ticks = append(ticks, plot.Tick{Value: v})
				}
			}
		}
	})
}

// Numbers are the ticks of a linear axis: six to fifteen round numbers.
var Numbers = plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
	step := round((high-low)/6, false)
	for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-9); i++ {
		v := i*step + 0 // and not a negative zero
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 6, 64)})
	}
	return ticks
})

// round returns the next of 1, 2, 5, 10, 20, … (and of 0.5, 0.2, …) at or below v, or at or above it.
func round(v float64, up bool) float64 {
	power := math.Pow10(int(math.Floor(math.Log10(v) + 1e-9)))
	best := power
	for _, digit := range []float64{1, 2, 5, 10} {
		if up && digit*power >= v*(1-1e-9) {
			return digit * power
		}
		if !up && digit*power <= v*(1+1e-9) {
			best = digit * power
		}
	}
	return best
}

// Logarithmic makes an axis logarithmic, from the round number at or below low to the one at or above
// high. Both are above 0.
func Logarithmic(axis *plot.Axis, ticks plot.Ticker, low, high float64) {
	axis.Min, axis.Max = round(low, false), round(high, true)
	if axis.Max <= axis.Min {
		axis.Max = 10 * axis.Min
	}
	axis.Scale, axis.Tick.Marker = plot.LogScale{}, ticks
}

// Dots are circles at points, half transparent.
func Dots(points plotter.XYs, c color.NRGBA, radius float64) *plotter.Scatter {
	c.A = 0x90
	return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{
		Color: c, Radius: vg.Points(radius), Shape: draw.CircleGlyph{},
	}}
}

// Write writes the figure as an SVG of that size, in pixels.
func (f *Figure) Write(w io.Writer, width, height float64) error {
	const pixel, margin = 0.75, 10 // points
	canvas := vgsvg.New(vg.Points(width*pixel), vg.Points(height*pixel))
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	f.Draw(f.heading(draw.Crop(whole, margin, -margin, margin, -margin)))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	return nil
}
