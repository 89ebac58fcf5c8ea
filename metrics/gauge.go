// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/component-base/metrics"
)

// streamStates are the label values of the stream's state, in the generator's numbering.
var streamStates = []string{"Idle", "Opening", "Connected", "Backoff", "Unsupported"}

// series calls yield for each series of a metric pulled by scrapes, a gauge or the counter of
// another component, with the values yielded by the sources. The values of several labels stand
// between slashes.
func (d definition) series(yielded map[string]float64, yield func(labelValue string, v float64)) {
	v, ok := yielded[d.source]
	switch {
	case ok && d.states != nil:
		for i, state := range d.states {
			if int(v) == i {
				yield(state, 1)
			} else {
				yield(state, 0)
			}
		}
	case ok:
		yield("", v)
	case d.label != "":
		for _, name := range slices.Sorted(maps.Keys(yielded)) {
			if value, ok := strings.CutPrefix(name, d.source); ok {
				yield(value, yielded[name])
			}
		}
	}
}

// values returns the values of its labels from the part of a yielded name that holds them. Names
// may hold what a runtime says: a missing value is empty, and bytes that are no UTF-8 are replaced,
// as a wrong number of values and such bytes end the process of the scrape.
func (d definition) values(yielded string) []string {
	values := make([]string, len(d.labels()))
	copy(values, strings.SplitN(strings.ToValidUTF8(yielded, "\uFFFD"), "/", len(values)))
	return values
}

// gauges are computed at a scrape, in the order of docs/metrics.md.
var gauges = []definition{
	{
		name:   "evented_pleg_stream_state",
		kind:   gauge,
		source: "stream_state",
		label:  "state",
		states: streamStates,
		help:   "1 for the present state of the stream of container events, 0 for the others.",
		guidance: "Connected on a healthy node. " +
			"Backoff: lost. " +
			"Unsupported: no events. " +
			"Idle: a generic generator.",
	},
	{
		name:     "evented_pleg_runtime_info",
		kind:     gauge,
		source:   "runtime/",
		label:    "runtime,version",
		help:     "1 for the name and the version of the container runtime, as the runtime says.",
		guidance: "From `pleg-bench watch` and `pleg-agent`. Joins a node's metrics with its runtime's version.",
	},
	{
		name:     "evented_pleg_relist_period_seconds",
		kind:     gauge,
		source:   "relist_period_seconds",
		help:     "Time in seconds from one list of the whole runtime to the next, set by trust.",
		guidance: "1 without trust, up to 300 on a healthy node.",
	},
	{
		name:     "evented_pleg_healthy",
		kind:     gauge,
		source:   "healthy",
		help:     "1 while the generator is healthy, 0 while it does not run or lists end too late.",
		guidance: "1. At 0 a kubelet turns its node NotReady.",
	},
	{
		name:     "evented_pleg_last_relist_age_seconds",
		kind:     gauge,
		source:   "last_relist_age_seconds",
		help:     "Time in seconds since the last successful full list, or since the start.",
		guidance: "Below the period plus a relist. Unhealthy at 180 over the period.",
	},
	{
		name:     "kubelet_pleg_last_seen_seconds",
		kind:     gauge,
		source:   "last_seen_seconds",
		help:     "Timestamp in seconds of the end of the last successful full list.",
		guidance: "The kubelet's form of the age above. Missing before the first list.",
	},
	{
		name:     "evented_pleg_waiters",
		kind:     gauge,
		source:   "waiters",
		help:     "Number of callers waiting in the cache for a newer status.",
		guidance: "A few, for milliseconds. Many for long: reads are slow or fail.",
	},
	{
		name:     "evented_pleg_unread_pods",
		kind:     gauge,
		source:   "unread_pods",
		help:     "Number of pods whose last read failed, whole or in part.",
		guidance: "0. The log and PodInspectFailed name the pods. All else of them is followed.",
	},
	{
		name:     "evented_pleg_unread_items",
		kind:     gauge,
		source:   "unread_items",
		help:     "Number of containers and sandboxes whose status the runtime could not give.",
		guidance: "0. Their phases still follow from lists and events.",
	},
	{
		name:     "evented_pleg_dirty_pods",
		kind:     gauge,
		source:   "dirty_pods",
		help:     "Number of pods that want a read.",
		guidance: "Near 0 between bursts. Growing: reads are slower than changes.",
	},
	{
		name:     "evented_pleg_inspecting_pods",
		kind:     gauge,
		source:   "inspecting",
		help:     "Number of pods being read.",
		guidance: "At most InspectWorkers while reads are quick. More for long: reads hang.",
	},
	{
		name:     "evented_pleg_owed_pods",
		kind:     gauge,
		source:   "owed_pods",
		help:     "Number of pods owed a PodSync because Watch was full.",
		guidance: "0. Above: Watch is not being read.",
	},
	{
		name:     "kubelet_running_pods",
		kind:     gauge,
		source:   "running_pods",
		help:     "Number of pods with a ready sandbox.",
		guidance: "Equals the runtime's lists.",
	},
	{
		name:     "kubelet_running_containers",
		kind:     gauge,
		source:   "containers_",
		label:    "container_state",
		help:     "Number of containers in the runtime, by state.",
		guidance: "Equals the runtime's lists. Exited growing: nobody removes dead containers.",
	},
}

// gaugeSource is where scrapes read gauges from.
type gaugeSource struct {
	// used is whether anything was reported to the set.
	used atomic.Bool
	// sources is replaced, and the slice never changes.
	sources atomic.Pointer[[]func(yield func(string, float64))]
}

// SetGauges sets the sources read by scrapes: a generator's Gauges method, and, for the metrics of
// the CRI client, the client's Counts method. Earlier sources are replaced; nil removes them and
// their metrics. Sources must be safe for concurrent use and must not block. Scrapes of a set in
// use fail until SetGauges is called, because alerts depend on the gauges.
func (g *gaugeSource) SetGauges(sources ...func(yield func(name string, v float64))) {
	var given []func(yield func(string, float64))
	for _, source := range sources {
		if source != nil {
			given = append(given, source)
		}
	}
	g.sources.Store(&given)
}

// noGauges is the label of the series that fail the scrapes of a set without sources in use by a
// generator.
const noGauges = "SetGauges was never called: without the gauges, alerts are blind"

// collector serves gauges. A registry may call collector at a scrape from any goroutine.
type collector struct {
	metrics.BaseStableCollector
	from   *gaugeSource
	gauges []definition
	descs  []*metrics.Desc // parallel to gauges
}

func newCollector(from *gaugeSource, gauges []definition, options Options) *collector {
	c := &collector{from: from, gauges: gauges}
	for _, g := range gauges {
		name := g.registeredName(options.OmitKubelet)
		c.descs = append(c.descs, metrics.NewDesc(name, g.help, g.labels(), nil, stability, ""))
	}
	return c
}

// DescribeWithStability sends every gauge's description.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// CollectWithStability sends the values that the sources yield now. Of series whose names differ in
// nothing that labels can hold, it sends the first by name: two equal ones fail a scrape.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	sources := c.from.sources.Load()
	if sources == nil {
		if c.from.used.Load() {
			// Two equal series fail a scrape. Prometheus' own metric for errors would be an import
			// forbidden in the tree of Kubernetes.
			forgotten := metrics.NewLazyConstMetric(c.descs[0], metrics.GaugeValue, 0, noGauges)
			ch <- forgotten
			ch <- forgotten
		}
		return
	}
	yielded := make(map[string]float64)
	for _, source := range *sources {
		source(func(name string, v float64) { yielded[name] = v })
	}
	for i, g := range c.gauges {
		valueType := metrics.GaugeValue
		if g.kind == counter {
			valueType = metrics.CounterValue
		}
		sent := make(map[string]bool)
		g.series(yielded, func(labelValue string, v float64) {
			values := g.values(labelValue)
			key := strings.Join(values, "/") // a slash stands in the last value only
			if !sent[key] {
				sent[key] = true
				ch <- metrics.NewLazyConstMetric(c.descs[i], valueType, v, values...)
			}
		})
	}
}
