// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
)

// result is the measurements of a contestant in a case of a row.
type result struct {
	Row   string
	Case  string
	Agent string
	// Values holds the rounds of each measure, by unit, each for a single operation.
	Values map[string][]float64
}

// Units, as benchstat knows them.
const (
	unitCPU     = "cpu-ns/op"
	unitWall    = "ns/op"
	unitBytes   = "B/op"
	unitObjects = "allocs/op"
	unitWakeups = "wakeups/op"
	unitP50     = "p50-ns"
	unitP99     = "p99-ns"
	unitMax     = "max-ns"
	unitHeap    = "B/container"
	unitTotal   = "total-cpu-ns"
	unitLists   = "lists"
)

var units = []string{unitCPU, unitTotal, unitWall, unitBytes, unitObjects, unitWakeups, unitP50, unitP99, unitMax, unitHeap, unitLists,
	unitAgent, unitRuntime, unitMade, unitCalls + " ListPodSandbox/op", unitCalls + " ListContainers/op", unitCalls + " PodSandboxStatus/op",
	unitCalls + " ContainerStatus/op", unitWatch + "-p50-ns", unitWatch + "-p99-ns", unitUntold, unitWait + "-p50-ns", unitWait + "-p99-ns", unitWaiting}

// of returns the named result, made if needed.
func (b *bench) of(row, what, agent string) *result {
	i := slices.IndexFunc(b.results, func(r result) bool { return r.Row == row && r.Case == what && r.Agent == agent })
	if i < 0 {
		i = len(b.results)
		b.results = append(b.results, result{Row: row, Case: what, Agent: agent, Values: make(map[string][]float64)})
	}
	return &b.results[i]
}

func (r *result) add(unit string, v float64) { r.Values[unit] = append(r.Values[unit], v) }

// cost adds a round of n operations.
func (r *result) cost(c agent.Cost, n int) {
	per := float64(n)
	r.add(unitCPU, float64(c.CPU)/per)
	r.add(unitWall, float64(c.Wall)/per)
	r.add(unitBytes, float64(c.Bytes)/per)
	r.add(unitObjects, float64(c.Objects)/per)
	r.add(unitWakeups, float64(c.Wakeups)/per)
}

// latencies adds a round of latencies in nanoseconds.
func (r *result) latencies(all []int64) {
	slices.Sort(all)
	r.add(unitP50, quantile(all, 0.5))
	r.add(unitP99, quantile(all, 0.99))
	r.add(unitMax, quantile(all, 1))
}

// quantile returns the smallest of the sorted values not exceeded by a share q of them.
func quantile(sorted []int64, q float64) float64 {
	return float64(sorted[min(int(math.Ceil(q*float64(len(sorted))))-1, len(sorted)-1)])
}

// median returns the middle of the rounds; not a number if there are none.
func (r *result) median(unit string) float64 {
	return median(slices.Sorted(slices.Values(r.Values[unit])))
}

// median returns the median of sorted values, NaN without any.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// lines prints every round as a line for benchstat.
func (b *bench) lines(w io.Writer) error {
	for _, r := range b.results {
		rounds := 0
		for _, v := range r.Values {
			rounds = max(rounds, len(v))
		}
		for i := range rounds {
			fmt.Fprintf(w, "BenchmarkPeer/%s/%s/agent=%s 1", r.Row, r.Case, r.Agent)
			for _, u := range units {
				if i < len(r.Values[u]) {
					fmt.Fprintf(w, " %.6g %s", r.Values[u][i], u)
				}
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
	}
	return nil
}
