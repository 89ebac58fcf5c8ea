// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cachemodel

import (
	"math/rand/v2"
	"testing"
)

// TestAgainstModel applies long random sequences of operations, with mostly growing times, to the
// cache and to the model.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		x := newPair()
		now := 1
		for i := range 1000 {
			now += rng.IntN(3)
			op, p, at := rng.IntN(6), rng.IntN(2), max(1, now-rng.IntN(6))
			if op == 5 && rng.IntN(4) > 0 {
				continue
			}
			if what := x.apply(op, p, i+1, at); what != "" {
				t.Fatalf("seed %d, operation %d, kind %d of pod %d at %d: %s", seed, i, op, p, at, what)
			}
		}
	}
}
