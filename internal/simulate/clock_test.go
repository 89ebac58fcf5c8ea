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

var clockFlag = flag.Int(
	"clock-seeds",
	100,
	"number of histories that are run with and without their steps of the wall clock",
)

// TestClockStepsChangeNothing runs histories with and without their steps of the wall clock
// (invariant 10): every event, every read and its time, the cache and the statistics must be the
// same, except the latency metric and the count of replayed claims, which follow wall clocks.
//
// The order of two goroutines within an instant is not fixed, and a few histories have several
// outcomes, most of them under the race detector. So a differing part of the outcome is only a
// fault if several more runs of both agree among themselves.
func TestClockStepsChangeNothing(t *testing.T) {
	const again = 40
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
			t.Fatalf(
				"seed %d: %s: without the steps of the clock -, with them +:\n%s\n%s",
				seed,
				p,
				cmp.Diff(without[0].Part(p), with[0].Part(p)),
				h,
			)
		}
	}
	t.Logf(
		"%d histories with %d steps of the clock, %d of them with more than one outcome",
		runs,
		stepped,
		loose,
	)
}

// unsteady puts steps of the wall clock into a history without any.
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

// differing returns the parts with equal outcomes of either kind, and different outcomes between
// the kinds.
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
