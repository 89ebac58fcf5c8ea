// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"slices"
	"time"
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
