// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Quantiles sum up a set of durations. All are zero for an empty set.
type Quantiles struct {
	Count              int
	P50, P90, P99, Max time.Duration
}

// Summarize computes quantiles by nearest rank. It sorts d.
func Summarize(d []time.Duration) Quantiles {
	if len(d) == 0 {
		return Quantiles{}
	}
	slices.Sort(d)
	rank := func(q float64) time.Duration {
		i := int(math.Ceil(q*float64(len(d)))) - 1
		return d[min(max(i, 0), len(d)-1)]
	}
	return Quantiles{
		Count: len(d),
		P50:   rank(0.5),
		P90:   rank(0.9),
		P99:   rank(0.99),
		Max:   d[len(d)-1],
	}
}

// Histogram is a set of durations in little memory, each kept within 1 % from 1 µs to an hour; what
// lies outside counts as the nearest. The zero value is empty. It has no lock.
type Histogram struct{ h *hdrhistogram.Histogram }

const (
	leastTime, mostTime = time.Microsecond, time.Hour
	timeDigits          = 2
)

// Record adds a duration.
func (h *Histogram) Record(d time.Duration) {
	if h.h == nil {
		h.h = hdrhistogram.New(int64(leastTime), int64(mostTime), timeDigits)
	}
	_ = h.h.RecordValue(int64(min(max(d, leastTime), mostTime))) // fails only outside these bounds
}

// Seconds sums the histogram up.
func (h *Histogram) Seconds() LatencyResult {
	if h.h == nil {
		return LatencyResult{}
	}
	at := func(percent float64) float64 { return time.Duration(h.h.ValueAtQuantile(percent)).Seconds() }
	return LatencyResult{
		Count: int(h.h.TotalCount()),
		P50:   at(50),
		P90:   at(90),
		P99:   at(99),
		Max:   at(100),
	}
}
