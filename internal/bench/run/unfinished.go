// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import "github.com/evented-pleg/evented-pleg/internal/bench"

// Unfinished is the document of a run that ended before it had measured anything.
func Unfinished(o Options, why string, interrupted bool) *bench.Result {
	return &bench.Result{
		Schema:      bench.Schema,
		Failures:    []string{why},
		Interrupted: interrupted,
		NoVerdict:   []string{why},
		Runtime:     unmet(o),
		Load: bench.LoadResult{
			Pods:        o.Pods,
			Containers:  o.Containers,
			Rate:        o.Rate,
			Seed:        o.Seed,
			Faults:      []string{},
			Errors:      map[string]int{},
			FirstErrors: map[string]string{},
		},
		Strangers: []string{},
	}
}

// UnfinishedStress is that of a stress test.
func UnfinishedStress(o StressOptions, why string, interrupted bool) *bench.StressResult {
	end := bench.EndUnfinished
	if interrupted {
		end = bench.EndInterrupted
	}
	return &bench.StressResult{
		Schema:      bench.StressSchema,
		Runtime:     unmet(o.Options),
		End:         end,
		Unfinished:  why,
		FirstErrors: map[string]string{},
		Steps:       []bench.StressStep{},
	}
}

// unmet is a runtime that has not said what it is.
func unmet(o Options) bench.RuntimeResult {
	is := bench.RuntimeResult{Endpoint: o.Endpoint}
	if o.Endpoint == "" {
		is.Profile = o.Profile
	}
	return is
}
