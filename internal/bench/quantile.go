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
	return Quantiles{Count: len(d), P50: rank(0.5), P90: rank(0.9), P99: rank(0.99), Max: d[len(d)-1]}
}

// Histogram is a set of durations in little memory, each kept within 1 % from 1 µs to an hour; what
// lies outside counts as the nearest. The zero value is empty. It has no lock.
type Histogram struct{ h *hdrhistogram.Histogram }

const (
	leastTime, mostTime = time.Microsecond, time.Hour
	timeDigits          = 2
)

func (h *Histogram) ready() *hdrhistogram.Histogram {
	if h.h == nil {
		h.h = hdrhistogram.New(int64(leastTime), int64(mostTime), timeDigits)
	}
	return h.h
}

// Record adds a duration.
func (h *Histogram) Record(d time.Duration) {
	_ = h.ready().RecordValue(int64(min(max(d, leastTime), mostTime))) // fails only outside these bounds
}

// Count is the number of durations.
func (h *Histogram) Count() int {
	if h.h == nil {
		return 0
	}
	return int(h.h.TotalCount())
}

// At returns the duration not exceeded by the given share, from 0 to 1; 0 without durations.
func (h *Histogram) At(share float64) time.Duration {
	if h.h == nil {
		return 0
	}
	return time.Duration(h.h.ValueAtQuantile(100 * share))
}

// Seconds sums the histogram up.
func (h *Histogram) Seconds() LatencyResult {
	if h.Count() == 0 {
		return LatencyResult{}
	}
	return LatencyResult{
		Count: h.Count(), P50: h.At(0.5).Seconds(), P90: h.At(0.9).Seconds(), P99: h.At(0.99).Seconds(), Max: time.Duration(h.h.Max()).Seconds(),
	}
}
