// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Quantiles tells p50, p99 and the largest of the samples, in milliseconds.
func Quantiles(samples []time.Duration) string {
	q := bench.Summarize(slices.Clone(samples))
	return fmt.Sprintf("%s/%s/%sms(n=%d)", Millis(q.P50), Millis(q.P99), Millis(q.Max), q.Count)
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
