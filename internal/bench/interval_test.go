// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestShare compares with published values, and covers the truth in 95 of 100 tries.
func TestShare(t *testing.T) {
	for _, test := range []struct {
		hits, of  int
		low, high float64
	}{
		{0, 10, 0, 0.3085}, {1, 10, 0.0025, 0.4450}, {5, 10, 0.1871, 0.8129}, {10, 10, 0.6915, 1}, {0, 100, 0, 0.0362}, {50, 1000, 0.0373, 0.0654},
	} {
		s := NewShare(test.hits, test.of)
		if math.Abs(s.Low-test.low) > 1e-4 || math.Abs(s.High-test.high) > 1e-4 {
			t.Errorf(
				"%d of %d: %.4f to %.4f, want %.4f to %.4f",
				test.hits,
				test.of,
				s.Low,
				s.High,
				test.low,
				test.high,
			)
		}
	}
	for share, want := range map[Share]string{
		NewShare(19, 19):    "100 % (82 to 100 %)",
		NewShare(999, 1000): "100 % (99 to 100 %)",
		NewShare(99, 100):   "99 % (95 to 100 %)",
		NewShare(1, 100):    "1 % (0.025 to 5.4 %)",
		NewShare(0, 10):     "0 % (0 to 31 %)",
	} {
		if share.String() != want {
			t.Errorf("%v, want %s", share, want)
		}
	}
	if s := NewShare(0, 0); s.Low != 0 || s.High != 1 {
		t.Errorf("of nothing: %+v", s)
	}
	random, outside := rand.New(rand.NewPCG(1, 2)), 0
	const tries, of, p = 1000, 80, 0.2
	for range tries {
		hits := 0
		for range of {
			if random.Float64() < p {
				hits++
			}
		}
		if s := NewShare(hits, of); p < s.Low || p > s.High {
			outside++
		}
	}
	if outside > tries/20 {
		t.Errorf("%d of %d intervals miss the truth", outside, tries)
	}
}
