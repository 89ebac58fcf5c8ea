// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"testing"
)

// TestMarksBeginAnew compares reports with a pod while the numbers of comparisons are used up: no
// item bears the mark of a comparison to come.
func TestMarksBeginAnew(t *testing.T) {
	r := newRecords()
	p := r.ensure("p")
	both := []Item{
		{ID: "s", Kind: Sandbox, Phase: PhaseRunning},
		{ID: "c", Kind: Container, Phase: PhaseRunning},
	}
	r.show(p, both)
	for _, x := range p.items {
		x.mark = 1 // by a comparison of the last round of numbers
	}
	r.marks = math.MaxUint32
	if !r.matches(p, both) {
		t.Error("the pod does not match what it shows")
	}
	if r.matches(p, both[:1]) {
		t.Error("the pod matches a report without its container")
	}
	if r.marks != 2 {
		t.Errorf("the second comparison of the round has number %d", r.marks)
	}
}
