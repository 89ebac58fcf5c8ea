// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"time"
)

// Quantile returns the value below which the fraction q of the samples lies, by
// nearest rank; 0 without samples. q is from 0 to 1.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Quantiles tells p50, p99 and the largest of the samples, in milliseconds.
func Quantiles(samples []time.Duration) string {
	return fmt.Sprintf("%s/%s/%sms(n=%d)", Millis(Quantile(samples, 0.50)), Millis(Quantile(samples, 0.99)),
		Millis(Quantile(samples, 1)), len(samples))
}

// Millis formats a duration as milliseconds without a unit, with as many digits
// as its size deserves.
func Millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.2f", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.0f", ms)
	}
}
