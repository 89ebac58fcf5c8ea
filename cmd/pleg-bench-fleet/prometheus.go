// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// source reads the metrics of a fleet.
type source struct {
	api prometheus.API
	// window is the time to judge; selector the matchers of every series, such as job="watch".
	window   time.Duration
	selector string
	// nodeLabel is the label with a node's name, by further labels to group nodes by.
	nodeLabel string
	by        []string
	// nodes is a query of all nodes expected to deliver metrics.
	nodes string
	warn  func(string)
}

// node has the metrics of a node. Counts are of the window.
type node struct {
	name string
	// runtime, version and labels are the group of the node.
	runtime, version string
	labels           map[string]string
	// runtimes counts the versions within the window.
	runtimes int
	// state is the stream's; period the present relist period in seconds.
	state  string
	period float64
	// seen is the time with metrics, in seconds.
	seen                             float64
	missed, unheard, received, lists float64
	// silent is why there are no metrics now; empty if there are.
	silent string
	examined
}

// nodeQuery is a query by node.
type nodeQuery struct {
	query string
	// create makes nodes unknown so far.
	create bool
	// set is called for each series with its node.
	set func(n *node, labels model.Metric, v float64)
}

// number is a query of a number for each known node.
func number(query string, set func(n *node, v float64)) nodeQuery {
	return nodeQuery{
		query: query,
		set:   func(n *node, _ model.Metric, v float64) { set(n, v) },
	}
}

// words is a query of labels for each known node.
func words(query string, set func(n *node, labels model.Metric)) nodeQuery {
	return nodeQuery{
		query: query,
		set:   func(n *node, labels model.Metric, _ float64) { set(n, labels) },
	}
}

// promql writes queries by node.
type promql struct {
	// by are the labels of all results: the node's, and those of --by.
	by []string
	// selector has the matchers of every series.
	selector string
	// window is the time to judge.
	window string
}

func (s source) promql() promql {
	return promql{
		by:       append([]string{s.nodeLabel}, s.by...),
		selector: s.selector,
		window:   model.Duration(s.window).String(),
	}
}

// series is a metric now.
func (p promql) series(name string) string { return name + "{" + p.selector + "}" }

// lately is the last value of a metric in the window.
func (p promql) lately(name string) string {
	return "last_over_time(" + p.series(name) + "[" + p.window + "])"
}

// each aggregates an expression by node and further labels.
func (p promql) each(aggregate, expr string, labels ...string) string {
	by := strings.Join(slices.Concat(p.by, labels), ", ")
	return aggregate + " by (" + by + ") (" + expr + ")"
}

// perClient is the largest value of a node's clients: a watch, an agent and a kubelet on the same
// runtime each have counts of their own.
func (p promql) perClient(expr string) string {
	return p.each("max", p.each("sum", expr, "job"))
}

// increase is the growth of a counter in the window, under any of its names.
func (p promql) increase(names ...string) string {
	for i, name := range names {
		names[i] = "increase(" + p.series(name) + "[" + p.window + "])"
	}
	return p.perClient(strings.Join(names, " or "))
}

// present is a metric served by every watch, of any runtime.
const present = "evented_pleg_relist_period_seconds"

// read asks for all nodes, in order of their names.
func (s source) read(ctx context.Context) ([]*node, error) {
	nodes := make(map[string]*node)
	at := time.Now()
	for _, q := range slices.Concat(s.presence(), s.figures(), s.absence(), s.doctorQueries()) {
		err := s.ask(ctx, q, at, nodes)
		if err != nil {
			return nil, fmt.Errorf("%w (the query: %s)", err, q.query)
		}
	}
	byName := func(a, b *node) int { return strings.Compare(a.name, b.name) }
	return slices.SortedFunc(maps.Values(nodes), byName), nil
}

// ask makes a query, and enters its series into the nodes.
func (s source) ask(ctx context.Context, q nodeQuery, at time.Time, nodes map[string]*node) error {
	value, warnings, _, err := s.api.Query(ctx, q.query, at)
	if err != nil {
		return fmt.Errorf("a query of Prometheus failed: %w", err)
	}
	for _, w := range warnings {
		s.warn(w)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return fmt.Errorf("a query of Prometheus gave a %s, not a vector", value.Type())
	}
	for _, sample := range vector {
		name := string(sample.Metric[model.LabelName(s.nodeLabel)])
		if name == "" {
			const remedy = "name the label that holds the node with --node-label, such as instance"
			return fmt.Errorf("a series has no label %s: %s", s.nodeLabel, remedy)
		}
		n := nodes[name]
		if n == nil && !q.create {
			continue
		}
		if n == nil {
			n = &node{name: name, labels: make(map[string]string)}
			for _, label := range s.by {
				n.labels[label] = string(sample.Metric[model.LabelName(label)])
			}
			nodes[name] = n
		}
		if v := float64(sample.Value); !math.IsNaN(v) {
			q.set(n, sample.Metric, v)
		}
	}
	return nil
}

// presence finds the nodes. Every node with metrics in the window counts as silent until a query of
// the present moment finds its metrics.
func (s source) presence() []nodeQuery {
	p := s.promql()
	return []nodeQuery{
		{
			query:  p.each("max", p.lately(present)),
			create: true,
			set: func(n *node, _ model.Metric, _ float64) {
				n.silent = "its metrics ended within the window"
			},
		},
		{
			query:  p.each("min", p.series(present)),
			create: true,
			set: func(n *node, _ model.Metric, v float64) {
				n.period = v
				n.silent = ""
			},
		},
	}
}

// figures asks for the metrics of the known nodes.
func (s source) figures() []nodeQuery {
	const info = "evented_pleg_runtime_info"
	p := s.promql()
	step := model.Duration(max(s.window/360, time.Second).Truncate(time.Second)).String()
	stamps := fmt.Sprintf("_over_time(timestamp(%s)[%s:%s])", p.series(present), p.window, step)
	received := p.increase("kubelet_evented_pleg_notifications_received", "evented_pleg_notifications_received")
	group := func(n *node, labels model.Metric) {
		n.runtime = string(labels["runtime"])
		n.version = string(labels["version"])
	}
	return []nodeQuery{
		words(p.each("max", p.lately(info), "runtime", "version"), func(n *node, labels model.Metric) {
			group(n, labels)
			n.runtimes++
		}),
		words(p.each("max", p.series(info), "runtime", "version"), group),
		words(p.each("max", p.series("evented_pleg_stream_state"), "state")+" > 0",
			func(n *node, labels model.Metric) { n.state = string(labels["state"]) }),
		number(p.perClient("max"+stamps+" - min"+stamps),
			func(n *node, v float64) { n.seen = min(v, s.window.Seconds()) }),
		number(p.increase("kube_pod_missed_events"), func(n *node, v float64) { n.missed = v }),
		number(p.increase("evented_pleg_unheard_changes_total"), func(n *node, v float64) { n.unheard = v }),
		number(received, func(n *node, v float64) { n.received = v }),
		number(p.increase("evented_pleg_relists_total"), func(n *node, v float64) { n.lists = v }),
	}
}

// absence finds the nodes without metrics now: targets with failing scrapes, and nodes of the
// cluster without a target.
func (s source) absence() []nodeQuery {
	p := s.promql()
	ours := " and on (job) group by (job) (" + p.lately(present) + ")"
	return []nodeQuery{
		{
			query:  p.each("min", p.series("up")+" == 0"+ours),
			create: true,
			set: func(n *node, _ model.Metric, _ float64) {
				if n.state == "" {
					n.silent = "its scrape fails"
				}
			},
		},
		{
			query:  "group by (" + s.nodeLabel + ") (" + s.nodes + ")",
			create: true,
			set: func(n *node, _ model.Metric, _ float64) {
				const never = "it is a node of the cluster and never had metrics in the window"
				if n.state == "" {
					n.silent = cmp.Or(n.silent, never)
				}
			},
		},
	}
}
