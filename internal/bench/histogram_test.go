// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestHistogram holds quantiles against exact ones, takes what is out of bounds for the nearest,
// and knows emptiness.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	var h Histogram
	if h.Seconds() != (LatencyResult{}) || h.At(0.5) != 0 || h.Count() != 0 {
		t.Error("an empty histogram is not empty")
	}
	for range 10_000 {
		d := time.Duration(r.ExpFloat64() * float64(20*time.Millisecond))
		all = append(all, d)
		h.Record(d)
	}
	want, got := Summarize(all).Seconds(), h.Seconds()
	for _, pair := range [][2]float64{{want.P50, got.P50}, {want.P90, got.P90}, {want.P99, got.P99}, {want.Max, got.Max}} {
		if off := pair[1]/pair[0] - 1; off < -0.02 || off > 0.02 {
			t.Errorf("%v, want %v within 2 %%", pair[1], pair[0])
		}
	}
	var odd Histogram
	odd.Record(-time.Second)
	odd.Record(48 * time.Hour)
	if s := odd.Seconds(); s.Count != 2 || s.P50 > 1e-5 || s.Max < 3590 {
		t.Errorf("%+v, want one of 1 µs and one of an hour", s)
	}
}
