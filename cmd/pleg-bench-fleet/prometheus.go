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
	// nodes is a query of all nodes that should deliver metrics.
	nodes string
	warn  func(string)
}

// node is what Prometheus knows of a node. Counts are those of the window.
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

// nodeQuery is a query by node. set is called for each series with its node, which is made if
// create is set.
type nodeQuery struct {
	query  string
	create bool
	set    func(n *node, labels model.Metric, v float64)
}

// read asks for all nodes, in order of their names.
func (s source) read(ctx context.Context) ([]*node, error) {
	const present = "evented_pleg_relist_period_seconds"
	nodes := make(map[string]*node)
	at := time.Now()
	// each calls set for each series of a query, with its node, made if create is set.
	each := func(query string, create bool, set func(n *node, labels model.Metric, v float64)) error {
		value, warnings, _, err := s.api.Query(ctx, query, at)
		if err != nil {
			return fmt.Errorf("a query of Prometheus failed: %w (the query: %s)", err, query)
		}
		for _, w := range warnings {
			s.warn(w)
		}
		vector, ok := value.(model.Vector)
		if !ok {
			return fmt.Errorf("a query of Prometheus gave a %s, not a vector (the query: %s)", value.Type(), query)
		}
		for _, sample := range vector {
			name := string(sample.Metric[model.LabelName(s.nodeLabel)])
			if name == "" {
				return fmt.Errorf("a series has no label %s: name the label that holds the node with --node-label, such as instance (the query: %s)", s.nodeLabel, query)
			}
			n := nodes[name]
			if n == nil && !create {
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
				set(n, sample.Metric, v)
			}
		}
		return nil
	}
	window := model.Duration(s.window).String()
	step := model.Duration(max(s.window/360, time.Second).Truncate(time.Second)).String()
	by := strings.Join(append([]string{s.nodeLabel}, s.by...), ", ")
	series := func(name string) string { return name + "{" + s.selector + "}" }
	// A watch, an agent and a kubelet on one node each count what they see of the same runtime.
	perClient := func(expr string) string {
		return "max by (" + by + ") (sum by (" + by + ", job) (" + expr + "))"
	}
	increase := func(names ...string) string {
		for i, name := range names {
			names[i] = "increase(" + series(name) + "[" + window + "])"
		}
		return perClient(strings.Join(names, " or "))
	}
	group := func(n *node, labels model.Metric) {
		n.runtime = string(labels["runtime"])
		n.version = string(labels["version"])
	}
	stamps := fmt.Sprintf("_over_time(timestamp(%s)[%s:%s])", series(present), window, step)
	queries := []nodeQuery{
		// Every node with metrics in the window counts as silent until it delivers them now.
		{"max by (" + by + ") (last_over_time(" + series(present) + "[" + window + "]))", true, func(n *node, _ model.Metric, _ float64) {
			n.silent = "its metrics ended within the window"
		}},
		{"min by (" + by + ") (" + series(present) + ")", true, func(n *node, _ model.Metric, v float64) {
			n.period = v
			n.silent = ""
		}},
		{"max by (" + by + ", runtime, version) (last_over_time(" + series("evented_pleg_runtime_info") + "[" + window + "]))", false,
			func(n *node, labels model.Metric, _ float64) { group(n, labels); n.runtimes++ }},
		{"max by (" + by + ", runtime, version) (" + series("evented_pleg_runtime_info") + ")", false,
			func(n *node, labels model.Metric, _ float64) { group(n, labels) }},
		{"max by (" + by + ", state) (" + series("evented_pleg_stream_state") + ") > 0", false,
			func(n *node, labels model.Metric, _ float64) { n.state = string(labels["state"]) }},
		{perClient("max" + stamps + " - min" + stamps), false, func(n *node, _ model.Metric, v float64) { n.seen = min(v, s.window.Seconds()) }},
		{increase("kube_pod_missed_events"), false, func(n *node, _ model.Metric, v float64) { n.missed = v }},
		{increase("evented_pleg_unheard_changes_total"), false, func(n *node, _ model.Metric, v float64) { n.unheard = v }},
		{increase("kubelet_evented_pleg_notifications_received", "evented_pleg_notifications_received"), false,
			func(n *node, _ model.Metric, v float64) { n.received = v }},
		{increase("evented_pleg_relists_total"), false, func(n *node, _ model.Metric, v float64) { n.lists = v }},
		{"min by (" + by + ") (" + series("up") + " == 0 and on (job) group by (job) (last_over_time(" + series(present) + "[" + window + "])))", true,
			func(n *node, _ model.Metric, _ float64) {
				if n.state == "" {
					n.silent = "its scrape fails"
				}
			}},
		{"group by (" + s.nodeLabel + ") (" + s.nodes + ")", true, func(n *node, _ model.Metric, _ float64) {
			if n.state == "" {
				n.silent = cmp.Or(n.silent, "it is a node of the cluster and never had metrics in the window")
			}
		}},
	}
	for _, q := range append(queries, s.doctorQueries(by, window)...) {
		if err := each(q.query, q.create, q.set); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(nodes), func(a, b *node) int { return strings.Compare(a.name, b.name) }), nil
}
