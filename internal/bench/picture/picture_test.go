// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// drawing is what an SVG shows: its words, and how many shapes are filled with a color.
type drawing struct {
	words  []string
	filled map[string]int
}

func read(t *testing.T, svg *bytes.Buffer) drawing {
	t.Helper()
	d := drawing{filled: make(map[string]int)}
	inText := false
	for decoder := xml.NewDecoder(svg); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inText = e.Name.Local == "text"
			for _, a := range e.Attr {
				if color, ok := strings.CutPrefix(a.Value, "fill:#"); ok && e.Name.Local == "path" {
					d.filled[color[:6]]++
				}
			}
		case xml.CharData:
			if inText {
				d.words = append(d.words, string(e))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

// TestLatency: every change is a dot where it belongs, those of no duration are told of, the axis says
// that it is logarithmic, and what was done to the runtime is marked.
func TestLatency(t *testing.T) {
	r := &bench.Result{
		Runtime: bench.RuntimeResult{Name: "containerd", Version: "<2>"},
		Load:    bench.LoadResult{Pods: 3, Containers: 2, DurationSeconds: 10, AchievedRate: 7},
		Outage:  &bench.OutageResult{Kind: "restart", AtSeconds: 4, DownSeconds: 0.6},
		Stall:   &bench.StallResult{AtSeconds: 9.5, ForSeconds: 1},
		Series: []bench.Series{
			{Mode: "evented", Points: []bench.Point{{At: time.Second, Latency: 20 * time.Microsecond}, {At: 2 * time.Second, Latency: 3 * time.Second}, {At: 3 * time.Second}}},
			{Mode: "generic", Points: []bench.Point{{At: 2 * time.Second, Latency: time.Second}}},
		},
	}
	var svg bytes.Buffer
	if err := Latency(&svg, r); err != nil {
		t.Fatal(err)
	}
	d := read(t, &svg)
	text := strings.Join(d.words, "\n")
	for _, want := range []string{
		"logarithmic", "containerd <2>, 3 pods × 2 containers, 7 changes/s", "evented: p50", "generic: p50 1 s",
		"1 changes of evented took no time that the clock shows", "runtime restart", "Watch not read", "in seconds", "100 µs", "1 s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q; it says\n%s", want, text)
		}
	}
	// One of each color is in the key. What is half transparent is a shade off, as colors are rounded.
	want := map[string]int{"1F6FEB": 1, "D1495B": 1, "1E6EEA": 2, "D0485A": 1, "EF9F1F": 2, "FFFFFF": 2}
	if diff := cmp.Diff(want, d.filled); diff != "" {
		t.Errorf("shapes by color (-want +got):\n%s", diff)
	}
}

// TestLatencyOfNothing draws runs in which nothing, or next to nothing, was told.
func TestLatencyOfNothing(t *testing.T) {
	for name, r := range map[string]*bench.Result{
		"nothing": {Load: bench.LoadResult{DurationSeconds: 1}},
		"no dots": {Load: bench.LoadResult{DurationSeconds: 1}, Series: []bench.Series{{Mode: "evented"}}},
		"no time": {Series: []bench.Series{{Mode: "evented", Points: []bench.Point{{}}}}},
	} {
		var svg bytes.Buffer
		r.Runtime.Profile = "crio"
		if err := Latency(&svg, r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(svg.String(), "fake runtime as crio, ") {
			t.Errorf("%s: the picture does not say that the runtime is a fake", name)
		}
		if d := read(t, &svg); len(d.words) < 4 {
			t.Errorf("%s: the picture says %q", name, d.words)
		}
	}
}

// TestLatencyOfManyChanges draws some of them, and says which.
func TestLatencyOfManyChanges(t *testing.T) {
	s := bench.Series{Mode: "evented"}
	for i := range 3 * mostDots {
		s.Points = append(s.Points, bench.Point{At: time.Duration(i) * time.Millisecond, Latency: time.Millisecond})
	}
	points, left := drawn(s)
	if len(points) > mostDots || len(points) < mostDots/2 || len(left) != 1 || left[0] != "evented: one dot for 4 changes" {
		t.Errorf("%d dots, %q", len(points), left)
	}
}

func TestTicks(t *testing.T) {
	labels := func(ticks []plot.Tick) (list []string) {
		for _, tick := range ticks {
			if !tick.IsMinor() {
				list = append(list, tick.Label)
			}
		}
		return list
	}
	for _, c := range []struct {
		ticker    plot.Ticker
		low, high float64
		want      []string
	}{
		{Numbers, 0, 8.2, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8"}},
		{Numbers, 0, 60, []string{"0", "10", "20", "30", "40", "50", "60"}},
		{Numbers, 0, 0.3, []string{"0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"}},
		{Durations, 2e-5, 2, []string{"10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"}},
	} {
		if diff := cmp.Diff(c.want, labels(c.ticker.Ticks(c.low, c.high))); diff != "" {
			t.Errorf("from %v to %v (-want +got):\n%s", c.low, c.high, diff)
		}
	}
	minor := slices.IndexFunc(Durations.Ticks(1e-3, 1), func(tick plot.Tick) bool { return tick.IsMinor() })
	if minor != 1 {
		t.Errorf("the first bare tick is number %d, want one between 1 ms and 10 ms", minor)
	}
	for v, want := range map[float64][2]float64{1: {1, 1}, 3: {2, 5}, 7e-5: {5e-5, 1e-4}, 99: {50, 100}} {
		if down, up := round(v, false), round(v, true); down != want[0] || up != want[1] {
			t.Errorf("%v lies between %v and %v, want %v", v, down, up, want)
		}
	}
}
