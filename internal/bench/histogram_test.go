// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
)

// TestHistogram holds it against exact quantiles, through JSON and a merge.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	var parts [2]Histogram
	for i := range 10_000 {
		d := time.Duration(r.ExpFloat64() * float64(20*time.Millisecond))
		all = append(all, d)
		parts[i%2].Record(d)
	}
	var merged Histogram
	for i := range parts {
		raw, err := json.Marshal(&parts[i])
		if err != nil {
			t.Fatal(err)
		}
		var back Histogram
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		merged.Merge(&back)
	}
	want, got := Summarize(all).Seconds(), merged.Seconds()
	for _, pair := range [][2]float64{{want.P50, got.P50}, {want.P90, got.P90}, {want.P99, got.P99}, {want.Max, got.Max}} {
		if off := pair[1]/pair[0] - 1; off < -0.02 || off > 0.02 {
			t.Errorf("%v, want %v within 2 %%", pair[1], pair[0])
		}
	}
	if got.Count != 10_000 {
		t.Errorf("%d durations, want 10000", got.Count)
	}
}

// TestHistogramBounds takes what is out of bounds for the nearest, and knows emptiness.
func TestHistogramBounds(t *testing.T) {
	var h Histogram
	if h.Seconds() != (LatencyResult{}) || h.At(0.5) != 0 || h.Count() != 0 {
		t.Error("an empty histogram is not empty")
	}
	h.Merge(new(Histogram))
	h.Record(-time.Second)
	h.Record(48 * time.Hour)
	if s := h.Seconds(); s.Count != 2 || s.P50 > 1e-5 || s.Max < 3590 {
		t.Errorf("%+v, want one of 1 µs and one of an hour", s)
	}
	for _, bad := range []string{`5`, `"not a histogram"`, `""`, `"HISTFAAA"`} {
		if err := json.Unmarshal([]byte(bad), new(Histogram)); err == nil {
			t.Errorf("%s is taken for a histogram", bad)
		}
	}
}
