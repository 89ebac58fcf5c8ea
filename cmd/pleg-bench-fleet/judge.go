// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
)

// Verdict is the worth of a fleet's event streams. docs/json.md documents its JSON.
type Verdict struct {
	// Schema is pleg-bench/fleet-verdict/v1.
	Schema string `json:"schema"`
	// Time is the end of the window.
	Time time.Time `json:"time"`
	// WindowSeconds is its length.
	WindowSeconds float64 `json:"window_seconds"`
	// Worth is full, partial, none, untested or unknown.
	Worth string `json:"worth"`
	// Summary is the worth in words.
	Summary string `json:"summary"`
	Totals
	// Groups are the nodes by runtime, version and the labels of --by.
	Groups []Group `json:"groups"`
	// Named are the nodes to look at, the worst first.
	Named []NamedNode `json:"named"`
	// Upgraded counts the nodes whose runtime changed within the window. All their counts are the
	// present version's.
	Upgraded int `json:"upgraded"`
	// Unfinished is why nothing was judged; left out otherwise.
	Unfinished string `json:"unfinished,omitempty"`
	// Doctor is what examinations of the runtimes have found. It does not concern the worth.
	Doctor Doctor `json:"doctor"`
}

// Totals are sums over nodes. Each node is in a single class.
type Totals struct {
	// Nodes counts all nodes.
	Nodes int `json:"nodes"`
	// Trusted counts nodes whose stream has earned a long relist period.
	Trusted int `json:"trusted"`
	// Earning counts nodes whose stream has yet to earn such a period.
	Earning int `json:"earning"`
	// Untested counts nodes on which nothing happened.
	Untested int `json:"untested"`
	// Losing counts nodes that lost events.
	Losing int `json:"losing"`
	// Away counts nodes without a stream for some time.
	Away int `json:"away"`
	// Unsupported counts nodes with a runtime without events.
	Unsupported int `json:"unsupported"`
	// Polling counts nodes that poll as asked.
	Polling int `json:"polling"`
	// Silent counts nodes without metrics.
	Silent int `json:"silent"`
	// TrustedShare is the share of trusted nodes.
	TrustedShare float64 `json:"trusted_share"`
	// Missed counts starts and exits found by lists alone, with a stream.
	Missed int `json:"missed"`
	// Unheard counts those without a stream.
	Unheard int `json:"unheard"`
	// Received counts events received.
	Received int `json:"received"`
	// Lists counts the lists made.
	Lists int `json:"lists"`
	// ListsPolled counts the lists in the same time at a list a second.
	ListsPolled int `json:"lists_polled"`
	// SavedShare is the share of those lists that were not made.
	SavedShare float64 `json:"saved_share"`
}

// Group is the nodes with a version of a runtime.
type Group struct {
	// Runtime is the runtime's name.
	Runtime string `json:"runtime"`
	// Version is the runtime's.
	Version string `json:"version"`
	// Labels are those of --by.
	Labels map[string]string `json:"labels"`
	Totals
	// PeriodSeconds is the median of the relist periods.
	PeriodSeconds float64 `json:"relist_period_seconds"`

	periods []float64
}

// NamedNode is a node to look at.
type NamedNode struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Runtime is the runtime's name.
	Runtime string `json:"runtime"`
	// Version is the runtime's.
	Version string `json:"version"`
	// Class is a class of the counts of nodes, such as losing.
	Class string `json:"class"`
	// Reason says why the node is named.
	Reason string `json:"reason"`
	// Missed counts starts and exits found by lists alone, with a stream.
	Missed int `json:"missed"`
	// Unheard counts those without a stream.
	Unheard int `json:"unheard"`
	// Received counts events received.
	Received int `json:"received"`
	// Lists counts the lists made.
	Lists int `json:"lists"`
	// PeriodSeconds is the relist period.
	PeriodSeconds float64 `json:"relist_period_seconds"`
}

// Classes, the worst first.
const (
	losing      = "losing"
	away        = "away"
	silent      = "silent"
	unsupported = "unsupported"
	earning     = "earning"
	polling     = "polling"
	untested    = "untested"
	trusted     = "trusted"
)

var classes = []string{losing, away, silent, unsupported, earning, polling, untested, trusted}

// slowToEarn is the time in which a faultless stream earns any accepted relist period.
const slowToEarn = 10 * time.Minute

// classify returns the class of a node, and the reason to name the node; empty for an unnamed node.
func (n *node) classify(trustedFrom time.Duration) (class, reason string) {
	missed := count(n.missed)
	unheard := count(n.unheard)
	switch {
	case n.silent != "":
		return silent, n.silent
	case n.state == "Unsupported":
		return unsupported, "the runtime offers no events"
	case n.state == "Idle":
		return polling, "" // as asked
	case missed > 0:
		return losing, fmt.Sprintf("%s came without an event", changes(missed))
	case n.state != "Connected":
		return away, "the stream is " + cmp.Or(n.state, "in an unknown state")
	case unheard > 0:
		return away, fmt.Sprintf("the stream was away for %s", changes(unheard))
	case count(n.received) == 0:
		return untested, ""
	case n.period >= trustedFrom.Seconds():
		return trusted, ""
	case n.seen > slowToEarn.Seconds():
		return earning, fmt.Sprintf("the relist period is %s after %s of metrics", bench.Seconds(n.period), bench.Seconds(math.Round(n.seen)))
	}
	return earning, ""
}

// count rounds an increase, which Prometheus extrapolates. Something is never nothing.
func count(v float64) int {
	if v > 0 && v < 1 {
		return 1
	}
	return int(math.Round(v))
}

func changes(n int) string { return bench.Count(n, "start or exit", "starts and exits") }

// in returns the number of nodes in a class.
func (t *Totals) in(class string) *int {
	return map[string]*int{
		losing:      &t.Losing,
		away:        &t.Away,
		silent:      &t.Silent,
		unsupported: &t.Unsupported,
		earning:     &t.Earning,
		polling:     &t.Polling,
		untested:    &t.Untested,
		trusted:     &t.Trusted,
	}[class]
}

// add adds a node of a class.
func (t *Totals) add(n *node, class string) {
	t.Nodes++
	*t.in(class)++
	t.Missed += count(n.missed)
	t.Unheard += count(n.unheard)
	t.Received += count(n.received)
	t.Lists += count(n.lists)
	t.ListsPolled += count(n.seen)
	t.TrustedShare = float64(t.Trusted) / float64(t.Nodes)
	if t.ListsPolled > 0 {
		t.SavedShare = max(0, 1-float64(t.Lists)/float64(t.ListsPolled))
	}
}

// judge sums nodes up.
// unjudged is the verdict of a question that Prometheus did not answer.
func (o *verdictOptions) unjudged(began time.Time, why string) *Verdict {
	v := judge(nil, began, o.window, o.trusted)
	v.Worth = "unknown"
	v.Summary = "nothing was judged"
	v.Unfinished = why
	return v
}

func judge(nodes []*node, at time.Time, window, trustedFrom time.Duration) *Verdict {
	v := &Verdict{
		Schema:        "pleg-bench/fleet-verdict/v1",
		Time:          at.UTC(),
		WindowSeconds: window.Seconds(),
		Groups:        []Group{},
		Named:         []NamedNode{},
	}
	groups := make(map[string]*Group)
	for _, n := range nodes {
		class, reason := n.classify(trustedFrom)
		v.add(n, class)
		runtime := cmp.Or(n.runtime, "unknown runtime")
		version := n.version
		key := fmt.Sprint(runtime, "\x00", version, "\x00", n.labels)
		g := groups[key]
		if g == nil {
			g = &Group{Runtime: runtime, Version: version, Labels: n.labels}
			groups[key] = g
		}
		g.add(n, class)
		if class != silent {
			g.periods = append(g.periods, n.period)
		}
		if n.runtimes > 1 {
			v.Upgraded++
		}
		if reason != "" {
			v.Named = append(v.Named, NamedNode{
				Node:          n.name,
				Runtime:       runtime,
				Version:       version,
				Class:         class,
				Reason:        reason,
				Missed:        count(n.missed),
				Unheard:       count(n.unheard),
				Received:      count(n.received),
				Lists:         count(n.lists),
				PeriodSeconds: n.period,
			})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		slices.Sort(g.periods)
		if len(g.periods) > 0 {
			g.PeriodSeconds = g.periods[len(g.periods)/2]
		}
		v.Groups = append(v.Groups, *g)
	}
	slices.SortStableFunc(v.Named, func(a, b NamedNode) int {
		return cmp.Or(
			cmp.Compare(slices.Index(classes, a.Class), slices.Index(classes, b.Class)),
			cmp.Compare(b.Missed, a.Missed),
			cmp.Compare(b.Unheard, a.Unheard),
		)
	})
	v.conclude()
	v.Doctor = diagnose(nodes)
	return v
}

// conclude puts the sums in words.
func (v *Verdict) conclude() {
	judged := v.Nodes - v.Silent - v.Polling
	worth := stream.WorthUntested
	switch {
	case v.Losing+v.Away > 0:
		worth = stream.WorthPartial
	case judged == v.Unsupported:
		worth = stream.WorthNone
	case judged == v.Trusted:
		worth = stream.WorthFull
	case v.Unsupported > 0:
		worth = stream.WorthPartial
	}
	v.Worth = string(worth)
	nodes := bench.Count(v.Nodes, "node")
	v.Summary = fmt.Sprintf("the event stream can be trusted on %d of %s", v.Trusted, nodes)
	for _, part := range []struct {
		n    int
		does string
	}{
		{v.Losing, "lost events"},
		{v.Away, "without a stream for some time"},
		{v.Unsupported, "with a runtime without events"},
		{v.Earning, "yet to earn trust"},
		{v.Untested, "on which nothing happened"},
		{v.Polling, "polling as asked"},
		{v.Silent, "without metrics"},
	} {
		if part.n > 0 {
			v.Summary += fmt.Sprintf("; %d %s", part.n, part.does)
		}
	}
	v.Summary += fmt.Sprintf(". %s made of the runtimes, and %d would have been at one a second: %.3g %% less",
		bench.Count(v.Lists, "list was", "lists were"), v.ListsPolled, 100*v.SavedShare)
}

// tones are the tones of good and bad worths.
var tones = map[stream.Worth]bench.Tone{
	stream.WorthFull:    bench.Good,
	stream.WorthPartial: bench.Bad,
	stream.WorthNone:    bench.Bad,
}

// mostNamed bounds the nodes named in a document.
const mostNamed = 30

// Document implements [bench.Finding].
func (v *Verdict) Document() bench.Document {
	window := model.Duration(v.WindowSeconds * float64(time.Second))
	d := bench.Document{
		Title:   fmt.Sprintf("%s in the last %s", bench.Count(v.Nodes, "node"), window),
		Verdict: strings.ToUpper(v.Worth) + ": " + v.Summary + ".",
		Tone:    tones[stream.Worth(v.Worth)],
	}
	streams := bench.Table{Title: "streams"}
	work := bench.Table{
		Title:   "events and lists",
		Columns: []string{"received", "missed", "unheard", "lists", "at 1/s", "saved", "period"},
	}
	add := func(name string, t Totals, period string) {
		numbers := []int{t.Nodes}
		columns := []string{"nodes"}
		for _, class := range slices.Backward(classes) {
			if *v.in(class) > 0 || class == trusted || class == losing {
				numbers = append(numbers, *t.in(class))
				columns = append(columns, class)
			}
		}
		streams.Columns = columns
		streams.Add(name, "", cells(numbers...)...)
		counts := cells(t.Received, t.Missed, t.Unheard, t.Lists, t.ListsPolled)
		saved := fmt.Sprintf("%.1f %%", 100*t.SavedShare)
		work.Add(name, "", append(counts, saved, period)...)
	}
	for _, g := range v.Groups {
		period := ""
		if g.Nodes > g.Silent {
			period = bench.Seconds(g.PeriodSeconds)
		}
		add(g.name(), g.Totals, period)
		if 2*g.Losing > g.Nodes && g.Losing > 1 {
			d.Advice = append(d.Advice, fmt.Sprintf("%s lost events on %d of %s: %s came without an event",
				g.name(), g.Losing, bench.Count(g.Nodes, "node"), changes(g.Missed)))
		}
	}
	if len(v.Groups) > 1 {
		add("all", v.Totals, "")
	}
	d.Tables = append(d.Tables, streams, work)
	if len(v.Named) > 0 {
		named := bench.Table{
			Title:   "nodes to look at",
			Columns: []string{"class", "missed", "unheard", "lists"},
		}
		for _, n := range v.Named[:min(len(v.Named), mostNamed)] {
			counts := cells(n.Missed, n.Unheard, n.Lists)
			named.Add(n.Node, n.Reason, slices.Insert(counts, 0, n.Class)...)
		}
		d.Tables = append(d.Tables, named)
	}
	if n := len(v.Named) - mostNamed; n > 0 {
		d.Story = append(d.Story, fmt.Sprintf("%d more are named by -o json.", n))
	}
	v.Doctor.document(&d)
	if v.Upgraded > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("The runtime of %s changed within the window: all counts are in the row of the present version.",
			bench.Count(v.Upgraded, "node")))
	}
	return d
}

// cells are numbers in a row of a table.
func cells(numbers ...int) (list []string) {
	for _, n := range numbers {
		list = append(list, fmt.Sprint(n))
	}
	return list
}

// name is the runtime, its version and the values of --by.
func (g Group) name() string {
	parts := []string{strings.TrimSpace(g.Runtime + " " + g.Version)}
	for _, label := range slices.Sorted(maps.Keys(g.Labels)) {
		parts = append(parts, label+"="+g.Labels[label])
	}
	return strings.Join(parts, " ")
}

// Benchmarks implements [bench.Finding].
func (v *Verdict) Benchmarks() (list []bench.Benchmark) {
	for _, g := range v.Groups {
		list = append(list, bench.Benchmark{
			Name: "Fleet/" + strings.ReplaceAll(g.name(), " ", "/"),
			Figures: []bench.Figure{
				{Value: float64(g.Nodes), Unit: "nodes"},
				{Value: g.TrustedShare, Unit: "trusted-share"},
				{Value: float64(g.Missed), Unit: "missed"},
				{Value: float64(g.Unheard), Unit: "unheard"},
				{Value: g.SavedShare, Unit: "saved-share"},
			},
		})
	}
	return list
}

// Unmeasured implements [bench.Finding].
func (v *Verdict) Unmeasured() []string { return nil }
