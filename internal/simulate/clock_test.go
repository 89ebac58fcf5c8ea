// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var clockFlag = flag.Int("clock-seeds", 300, "number of histories that are run with and without their steps of the wall clock")

// TestClockStepsChangeNothing runs histories with and without the steps of the wall clock in them
// (invariant 10): every event, every read and its time, the cache and the statistics must be the
// same, the latency metric and the count of replayed claims aside, which are made of wall clocks.
//
// Which of two goroutines runs first within one instant is not fixed, and a few histories end in
// more than one way for that, most of them under the race detector, which shuffles them. So a part
// of the outcome that differs is only a fault if in several more runs of both it is always the same
// with the steps, and always the same without them.
func TestClockStepsChangeNothing(t *testing.T) {
	const again = 8
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	runs, stepped, loose := 0, 0, 0
	for seed := *fromFlag; runs < *clockFlag; seed++ {
		h := Generate(seed)
		isStep := func(line string) bool { return strings.HasPrefix(line, "clock ") }
		if !slices.ContainsFunc(h, isStep) {
			h = unsteady(h)
		}
		steady := slices.DeleteFunc(slices.Clone(h), isStep)
		runs++
		stepped += len(h) - len(steady)
		run := func(h History) *Outcome {
			r := inBubble(t, h, Options{Record: true})
			if r.Violation != nil {
				t.Fatalf("seed %d: %v", seed, r.Violation)
			}
			return r.Outcome
		}
		with, without := []*Outcome{run(h)}, []*Outcome{run(steady)}
		parts := differing(with, without)
		for n := 0; len(parts) > 0 && n < again; n++ {
			with, without = append(with, run(h)), append(without, run(steady))
			if parts = differing(with, without); len(parts) == 0 {
				loose++
			}
		}
		if len(parts) > 0 {
			p := parts[0]
			t.Fatalf("seed %d: %s: without the steps of the clock -, with them +:\n%s\n%s", seed, p, cmp.Diff(without[0].Part(p), with[0].Part(p)), h)
		}
	}
	t.Logf("%d histories with %d steps of the clock, %d of them with more than one outcome", runs, stepped, loose)
}

// unsteady puts steps of the wall clock into a history that has none.
func unsteady(h History) History {
	var out History
	begun := false
	for i, line := range h {
		if begun = begun || line == "start"; begun && i%5 == 0 {
			out = append(out, "clock "+[]string{"-1h", "1h", "-1s", "1s"}[i/5%4])
		}
		out = append(out, line)
	}
	return out
}

// differing returns the parts of which all outcomes of one kind are equal, and all of the other,
// and not the same.
func differing(as, bs []*Outcome) []string {
	names := slices.Concat(as[0].Parts(), bs[0].Parts())
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		a, b := as[0].Part(name), bs[0].Part(name)
		unstable := func(of []*Outcome, first string) bool {
			return slices.ContainsFunc(of, func(o *Outcome) bool { return o.Part(name) != first })
		}
		return a == b || unstable(as, a) || unstable(bs, b)
	})
}
