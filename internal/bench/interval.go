// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math"
)

// Share is a share that was counted, with its exact interval (Clopper and Pearson) at 95 %.
type Share struct {
	// Of is the number of trials.
	Of int `json:"of"`
	// Hits is the number of those counted.
	Hits int `json:"hits"`
	// Share is that of the counted ones, 0 without a trial.
	Share float64 `json:"share"`
	// Low is the lower bound, 0 without a trial.
	Low float64 `json:"low"`
	// High is the upper bound, 1 without a trial.
	High float64 `json:"high"`
}

// NewShare returns the share of hits among trials.
func NewShare(hits, of int) Share {
	s := Share{Of: of, Hits: hits, High: 1}
	if of == 0 {
		return s
	}
	const tail = 0.025
	s.Share = float64(hits) / float64(of)
	if hits > 0 { // P(X >= hits) grows with p
		s.Low = solve(func(p float64) bool { return 1-cumulative(hits-1, of, p) < tail })
	}
	if hits < of { // P(X <= hits) falls with p
		s.High = solve(func(p float64) bool { return cumulative(hits, of, p) > tail })
	}
	return s
}

// String is for people, such as 23 % (12 to 37 %).
func (s Share) String() string { return Percent(s.Share) + " % (" + s.Interval() + ")" }

// Interval is the interval for people, such as 12 to 37 %.
func (s Share) Interval() string { return Percent(s.Low) + " to " + Percent(s.High) + " %" }

// Percent is a share in percent with two digits, all of them written out.
func Percent(share float64) string {
	percent := 100 * share
	if percent >= 99.5 { // two digits of these are 1e+02
		return fmt.Sprintf("%.0f", percent)
	}
	return fmt.Sprintf("%.2g", percent)
}

// solve returns where a condition that holds near 0 ceases to hold.
func solve(holds func(p float64) bool) float64 {
	low := 0.
	high := 1.
	for range 60 {
		middle := (low + high) / 2
		if holds(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// cumulative is the probability of k hits or fewer in n trials of probability p.
func cumulative(k, n int, p float64) (sum float64) {
	if p <= 0 {
		return 1
	}
	if p >= 1 {
		return 0 // k < n
	}
	all, _ := math.Lgamma(float64(n) + 1)
	for i := range k + 1 {
		hits, _ := math.Lgamma(float64(i) + 1)
		rest, _ := math.Lgamma(float64(n-i) + 1)
		sum += math.Exp(all - hits - rest + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return min(sum, 1)
}
