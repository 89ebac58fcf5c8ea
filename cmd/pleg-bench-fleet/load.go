// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// LoadReport is the outcome of a load on a fleet. docs/json.md documents its JSON.
type LoadReport struct {
	// Schema is pleg-bench/fleet-run/v1.
	Schema string `json:"schema"`
	// Time is the begin.
	Time time.Time `json:"time"`
	// Job is the namespace and the name of the removed Job.
	Job string `json:"job"`
	// OK is the verdict.
	OK bool `json:"ok"`
	// Interrupted is true if the user ended the load.
	Interrupted bool `json:"interrupted"`
	// Finished counts the nodes with an outcome.
	Finished int `json:"nodes"`
	// Passed counts the nodes whose run passed.
	Passed int `json:"passed"`
	LoadSums
	// Groups are the runs by version of a runtime.
	Groups []*LoadGroup `json:"groups"`
	// Failed are the nodes whose run failed, or that have no result.
	Failed []NodeReason `json:"failed"`
	// LeftOut are the nodes without a run.
	LeftOut []NodeReason `json:"left_out"`
	// RuntimeUnknown counts the nodes under load whose kubelet did not tell its runtime.
	RuntimeUnknown int `json:"runtime_unknown"`
	// Unfinished is why the load did not begin; left out otherwise.
	Unfinished string `json:"unfinished,omitempty"`
	// LeftBehind are the pods that were still there in the end.
	LeftBehind []string `json:"left_behind"`

	groups map[[2]string]*LoadGroup
}

// LoadSums are sums over the runs with a result, passed or not.
type LoadSums struct {
	// Results counts the results.
	Results int `json:"results"`
	// Changes counts starts, exits and removals.
	Changes int `json:"changes"`
	// Missed counts starts and exits found by a read without an event.
	Missed int `json:"missed"`
	// Duplicates counts events delivered twice.
	Duplicates int `json:"duplicates"`
	// OutOfOrder counts events delivered after an event of a later state.
	OutOfOrder int `json:"out_of_order"`
	// Mismatches counts pods that differ in the end.
	Mismatches int `json:"mismatches"`
	// StaleReads counts answers behind the load's knowledge.
	StaleReads int `json:"stale_reads"`
	// Latency is the worst of the runs, from the change to the delivery on Watch.
	Latency bench.LatencyResult `json:"latency_seconds"`
	// EventLatency is the worst of the runs, from the runtime's stamp of an event on.
	EventLatency bench.LatencyResult `json:"event_latency_seconds"`
	// Freshness is the worst of the runs, of how long GetNewerThan(now) took.
	Freshness bench.LatencyResult `json:"freshness_seconds"`
}

// LoadGroup is the runs on a version of a runtime.
type LoadGroup struct {
	// Runtime is the runtime's name.
	Runtime string `json:"runtime"`
	// Version is the runtime's.
	Version string `json:"version"`
	// Passed counts the runs that passed.
	Passed int `json:"passed"`
	LoadSums
}

// NodeReason is a node, and the reason to name it.
type NodeReason struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Reason says why the node is named.
	Reason string `json:"reason"`
}

func newLoadReport(began time.Time, left []NodeReason) *LoadReport {
	return &LoadReport{
		Schema:     "pleg-bench/fleet-run/v1",
		Time:       began.UTC(),
		Groups:     []*LoadGroup{},
		Failed:     []NodeReason{},
		LeftOut:    append([]NodeReason{}, left...),
		LeftBehind: []string{},
		groups:     make(map[[2]string]*LoadGroup),
	}
}

// add enters the result of a node, or why there is none.
func (r *LoadReport) add(node string, result *bench.Result, reason string) {
	r.Finished++
	if result != nil {
		g := r.groups[[2]string{result.Runtime.Name, result.Runtime.Version}]
		if g == nil {
			g = &LoadGroup{Runtime: result.Runtime.Name, Version: result.Runtime.Version}
			r.groups[[2]string{g.Runtime, g.Version}] = g
		}
		r.LoadSums.add(result)
		g.add(result)
		if result.OK {
			r.Passed++
			g.Passed++
			return
		}
		reason = strings.Join(result.Failures, "; ")
	}
	r.Failed = append(r.Failed, NodeReason{node, reason})
}

// add adds a result.
func (s *LoadSums) add(result *bench.Result) {
	s.Latency.Worst(result.Latency)
	s.EventLatency.Worst(result.EventLatency)
	s.Freshness.Worst(result.Freshness.LatencyResult)
	s.Results++
	s.Changes += result.Load.Changes
	s.Missed += result.Events.Missed
	s.Duplicates += result.Events.Duplicates
	s.OutOfOrder += result.Events.OutOfOrder
	s.Mismatches += result.Consistency.Mismatches
	s.StaleReads += result.Freshness.StaleReads
}

// conclude sums up.
func (r *LoadReport) conclude(interrupted bool) {
	r.Interrupted = interrupted
	r.OK = r.Finished > 0 && r.Passed == r.Finished && !interrupted
	byName := func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }
	for _, key := range slices.SortedFunc(maps.Keys(r.groups), byName) {
		r.Groups = append(r.Groups, r.groups[key])
	}
	slices.SortFunc(r.Failed, func(a, b NodeReason) int { return strings.Compare(a.Node, b.Node) })
	slices.Sort(r.LeftBehind)
}

// Document implements [bench.Finding].
func (r *LoadReport) Document() bench.Document {
	nodes := bench.Count(r.Finished, "node")
	d := bench.Document{
		Title: fmt.Sprintf("%s under load, by the Job %s", nodes, r.Job),
		Tone:  bench.Bad,
	}
	counts := bench.Table{
		Title:   "runs",
		Columns: []string{"results", "passed", "changes", "missed", "twice", "disorder", "differ", "stale"},
	}
	times := bench.NewDelayTable("change to Watch, worst")
	reads := bench.NewDelayTable("GetNewerThan(now), worst")
	add := func(name string, passed int, s LoadSums) {
		numbers := cells(
			s.Results, passed,
			s.Changes, s.Missed, s.Duplicates, s.OutOfOrder,
			s.Mismatches, s.StaleReads,
		)
		counts.Add(name, "", numbers...)
		times.AddDelays(name, s.Latency)
		reads.AddDelays(name, s.Freshness)
	}
	for _, g := range r.Groups {
		add(g.Runtime+" "+g.Version, g.Passed, g.LoadSums)
	}
	if len(r.Groups) > 1 {
		add("all", r.Passed, r.LoadSums)
	}
	for _, t := range []bench.Table{counts, times, reads} {
		if len(t.Rows) > 0 {
			d.Tables = append(d.Tables, t)
		}
	}
	name := func(format string, nodes []NodeReason) {
		for _, n := range nodes[:min(len(nodes), mostNamed)] {
			d.Story = append(d.Story, fmt.Sprintf(format, n.Node, n.Reason))
		}
		if n := len(nodes) - mostNamed; n > 0 {
			d.Story = append(d.Story, fmt.Sprintf("%d more are named by -o json.", n))
		}
	}
	name("%s failed: %s.", r.Failed)
	name("%s was left out: %s.", r.LeftOut)
	if len(r.LeftBehind) > 0 {
		left := bench.Few(r.LeftBehind)
		d.Story = append(d.Story, fmt.Sprintf("Left behind, until the kubelet removes them: %s.", left))
	}
	switch {
	case r.OK:
		d.Verdict = fmt.Sprintf("PASS: the runs on all of %s passed.", nodes)
		d.Tone = bench.Good
	case r.Interrupted:
		passed := bench.Count(r.Passed, "node")
		d.Verdict = fmt.Sprintf("NO VERDICT: interrupted; %s had passed.", passed)
		d.Tone = bench.Neutral
	default:
		d.Verdict = fmt.Sprintf("FAIL: %d of %s passed.", r.Passed, nodes)
	}
	return d
}

// Benchmarks implements [bench.Finding].
func (r *LoadReport) Benchmarks() (list []bench.Benchmark) {
	for _, g := range r.Groups {
		list = append(list, bench.Benchmark{
			Name: "FleetRun/" + strings.ReplaceAll(g.Runtime+"/"+g.Version, " ", "-"),
			Figures: []bench.Figure{
				{Value: g.Latency.P50, Unit: "p50-sec"},
				{Value: g.Latency.P99, Unit: "p99-sec"},
				{Value: float64(g.Missed), Unit: "missed"},
				{Value: float64(g.Passed), Unit: "passed"},
			},
		})
	}
	return list
}

// Unmeasured implements [bench.Finding].
func (r *LoadReport) Unmeasured() []string {
	if r.Results > 0 {
		return nil
	}
	return []string{"missed", "changes", "duplicates", "out_of_order", "mismatches", "stale_reads"}
}
