// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"strings"
	"testing"
)

// TestPublishedAlgorithmIsConvicted checks the checker: the search finds every known fault of the
// published algorithm within so many seeds.
func TestPublishedAlgorithmIsConvicted(t *testing.T) {
	const seeds = 1500
	crimes := []struct {
		name  string
		kinds []string
		guilt func(h History, v *Violation) bool // nil: the kind is enough
	}{
		{"double start", []string{"double-start"}, nil},
		{"stale read", []string{"stale-read", "stale"}, nil},
		{"resurrected pod", []string{"resurrected", "resurrected-read"}, nil},
		{"lost event", []string{"lost-event"}, nil},
		// A backward clock step freezes an entry: the same history without the steps is another
		// history.
		{"frozen clock", []string{"diverged", "stuck-waiter", "slow-waiter"}, func(h History, v *Violation) bool {
			if !slices.ContainsFunc(h, func(line string) bool { return strings.HasPrefix(line, "clock -") }) {
				return false
			}
			steady := slices.DeleteFunc(slices.Clone(h), func(line string) bool { return strings.HasPrefix(line, "clock") })
			r := inBubble(t, steady, Options{Published: true, Only: []string{v.Kind}})
			return r.Violation == nil
		}},
	}
	for _, c := range crimes {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); seed <= seeds; seed++ {
				h := Generate(seed)
				r := inBubble(t, h, Options{Published: true, Only: c.kinds})
				if r.Violation != nil && (c.guilt == nil || c.guilt(h, r.Violation)) {
					t.Logf("found after %d seeds: %v", seed, r.Violation)
					return
				}
			}
			t.Errorf("not found in %d seeds", seeds)
		})
	}
}
