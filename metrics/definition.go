// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strings"

	"k8s.io/component-base/metrics"
)

const (
	kubeletPrefix = "kubelet_"
	ownPrefix     = "evented_pleg_"
)

type kind string

const (
	counter   kind = "Counter"
	histogram kind = "Histogram"
	gauge     kind = "Gauge"
)

// definition is a metric as served.
type definition struct {
	// name is the full name, with the kubelet's prefix for the kubelet's own metrics.
	name string
	kind kind
	// source is the reporter's name for the metric. Of a metric with a label the source is a prefix of
	// names, and the rest the label's value; if the metric has states, the source yields the number
	// of the present state.
	source string
	states []string
	help   string
	// buckets are the upper bounds of a histogram, in seconds.
	buckets []float64
	// label is the name of its label, or the names of its labels with commas; empty for none.
	label string
	// guidance explains the values to an operator, in docs/metrics.md.
	guidance string
}

// kubelet reports whether a kubelet registers the name itself.
func (d definition) kubelet() bool { return strings.HasPrefix(d.name, kubeletPrefix) }

// registeredName returns the name to register: the kubelet's, or its twin if the kubelet's are left
// out.
func (d definition) registeredName(omitKubelet bool) string {
	if !omitKubelet || !d.kubelet() {
		return d.name
	}
	rest := strings.TrimPrefix(d.name, kubeletPrefix)
	rest = strings.TrimPrefix(rest, ownPrefix)
	return ownPrefix + strings.TrimPrefix(rest, "pleg_")
}

// labels returns the names of its labels.
func (d definition) labels() []string {
	if d.label == "" {
		return nil
	}
	return strings.Split(d.label, ",")
}

// stability is the level of every metric: names and labels may still change.
const stability = metrics.ALPHA

var (
	// latencyBuckets resolve a healthy stream (about 1 ms) and a stressed stream: KEP-3386 detects
	// stress by the 1 s bucket.
	latencyBuckets = []float64{
		0.0005,
		0.001, 0.0025, 0.005,
		0.01, 0.025, 0.05,
		0.1, 0.25, 0.5,
		1, 2.5, 5,
		10,
	}
	// readBuckets reach to the timeout of a read.
	readBuckets = slices.Concat(latencyBuckets, []float64{30, 60, 120})
	// intervalBuckets separate the periods of a generator: 1 s, doubled up to 300 s, each ending after
	// its relist. The bounds, doubled too, lie between the periods.
	intervalBuckets = []float64{0.1, 0.5, 1.5, 3, 6, 12, 24, 48, 96, 192, 280, 400}
)

// staysShort ends the guidance to counts of silent changes.
const staysShort = ", and the relist period stays short."

// pushed are the counters and histograms, in the order of docs/metrics.md.
var pushed = []definition{
	{
		name:     "kubelet_pleg_relist_duration_seconds",
		kind:     histogram,
		source:   "relist_duration",
		buckets:  readBuckets,
		help:     "Duration in seconds of a list of the whole runtime, until applied.",
		guidance: "Tens of milliseconds on a full node. Seconds: the runtime is slow or stuck.",
	},
	{
		name:     "kubelet_pleg_relist_interval_seconds",
		kind:     histogram,
		source:   "relist_interval",
		buckets:  intervalBuckets,
		help:     "Interval in seconds between the starts of two lists of the whole runtime.",
		guidance: "Grows to 300 with trust. About 1: the generator polls.",
	},
	{
		name:     "kubelet_pleg_pod_relist_duration_seconds",
		kind:     histogram,
		source:   "inspection_duration",
		buckets:  readBuckets,
		help:     "Duration in seconds of a read of one pod.",
		guidance: "Milliseconds. Seconds: the runtime is slow for single pods, often a stuck shim.",
	},
	{
		name:     "kubelet_pleg_discard_events",
		kind:     counter,
		source:   "discarded_events",
		help:     "Number of owed PodSyncs given up for gone pods because too many were owed.",
		guidance: "0. Above: the consumer has not read events for long.",
	},
	{
		name:     "kubelet_evented_pleg_connection_error_count",
		kind:     counter,
		source:   "connect_errors",
		help:     "Number of failures and ends of the stream of container events.",
		guidance: "Follows restarts of the runtime. Rising steadily: the stream does not hold.",
	},
	{
		name:     "kubelet_evented_pleg_connection_success_count",
		kind:     counter,
		source:   "connects",
		help:     "Number of connections of the stream of container events.",
		guidance: "1 after start, and 1 for each restart of the runtime.",
	},
	{
		name:     "kubelet_evented_pleg_connection_latency_seconds",
		kind:     histogram,
		source:   "latency",
		buckets:  latencyBuckets,
		help:     "Time in seconds from the stamp of a container event to its receipt here.",
		guidance: "A millisecond. 1 s or more: overload, or a step of the wall clock. No replays.",
	},
	{
		name:     "kubelet_evented_pleg_notifications_received",
		kind:     counter,
		source:   "claims",
		help:     "Number of container events received from the runtime.",
		guidance: "Moves with every container. Flat on a busy node: the runtime sends none.",
	},
	{
		name:     "kube_pod_missed_events",
		kind:     counter,
		source:   "missed_events",
		help:     "Number of starts and exits read without an event, while the stream was up.",
		guidance: "0. Rising: the runtime loses events.",
	},
	{
		name:     "evented_pleg_missed_starts_total",
		kind:     counter,
		source:   "missed_starts",
		help:     "Number of starts found by a read without an event, while the stream was up.",
		guidance: "0. A part of kube_pod_missed_events.",
	},
	{
		name:     "evented_pleg_missed_exits_total",
		kind:     counter,
		source:   "missed_exits",
		help:     "Number of exits found by a read without an event, while the stream was up.",
		guidance: "0. A part of kube_pod_missed_events.",
	},
	{
		name:     "evented_pleg_content_changes_total",
		kind:     counter,
		source:   "content_changes",
		help:     "Number of pod statuses changed beside their phases, without an event or call.",
		guidance: "0. Rising: others change limits or addresses, or events are late" + staysShort,
	},
	{
		name:     "evented_pleg_rereads_total",
		kind:     counter,
		source:   "rereads",
		help:     "Number of pod statuses read in the slow round over all pods, or at a reconnect.",
		guidance: "Rises by the number of pods every ten minutes.",
	},
	{
		name:     "evented_pleg_missed_unknowns_total",
		kind:     counter,
		source:   "missed_unknowns",
		help:     "Number of containers that entered or left an unknown state without an event.",
		guidance: "0. Rising: the runtime loses track of containers" + staysShort,
	},
	{
		name:     "evented_pleg_unheard_changes_total",
		kind:     counter,
		source:   "unheard_changes",
		help:     "Number of starts and exits found by a read, while events were not heard.",
		guidance: "Harmless: polling finds them. The stream was down, or events were discarded.",
	},
	{
		name:     "evented_pleg_missed_creations_total",
		kind:     counter,
		source:   "missed_creations",
		help:     "Number of creations found by a read without an event, while the stream was up.",
		guidance: "0, unless the runtime announces none. Else events are lost" + staysShort,
	},
	{
		name:     "evented_pleg_missed_removals_total",
		kind:     counter,
		source:   "missed_removals",
		help:     "Number of removals found by a read without an event, while the stream was up.",
		guidance: "0, unless the runtime announces none. Else events are lost" + staysShort,
	},
	{
		name:     "evented_pleg_stale_claims_total",
		kind:     counter,
		source:   "stale_claims",
		help:     "Number of container events without news: old, duplicated or behind a read.",
		guidance: "A share of all is normal: reads often win the race.",
	},
	{
		name:     "evented_pleg_replayed_claims_total",
		kind:     counter,
		source:   "replayed_claims",
		help:     "Number of container events stamped before their stream began, or in the future.",
		guidance: "A burst after a reconnect is a backlog. Rising otherwise: clocks differ.",
	},
	{
		name:     "evented_pleg_discarded_claims_total",
		kind:     counter,
		source:   "discarded_claims",
		help:     "Number of container events without room; a relist stood in for them.",
		guidance: "0. Above: more changes at once than the bounds of the configuration.",
	},
	{
		name:     "evented_pleg_acks_total",
		kind:     counter,
		source:   "acks",
		help:     "Number of returned calls of the agent, as reported to the generator.",
		guidance: "Three for a new pod of one container, four for its end. Flat: none is reported.",
	},
	{
		name:     "evented_pleg_discarded_acks_total",
		kind:     counter,
		source:   "discarded_acks",
		help:     "Number of reports of own calls without room; a relist stood in for them.",
		guidance: "0. Above: more calls at once than MailboxMax.",
	},
	{
		name:     "evented_pleg_overruled_claims_total",
		kind:     counter,
		source:   "overruled_claims",
		help:     "Number of container events refuted by a later read.",
		guidance: "0. Above: the runtime reports changes that did not happen, and loses trust.",
	},
	{
		name:     "evented_pleg_regressions_total",
		kind:     counter,
		source:   "regressions",
		help:     "Number of phases taken back from a read by a later read.",
		guidance: "0, or a recovered sandbox. Rising: the runtime contradicts itself.",
	},
	{
		name:     "evented_pleg_relists_total",
		kind:     counter,
		source:   "relists",
		help:     "Number of finished lists of the whole runtime.",
		guidance: "The price of polling: 1/s without trust, 1/300 s with trust.",
	},
	{
		name:     "evented_pleg_relist_errors_total",
		kind:     counter,
		source:   "relist_errors",
		help:     "Number of failed lists of the whole runtime.",
		guidance: "0, except for restarts of the runtime.",
	},
	{
		name:     "evented_pleg_inspections_total",
		kind:     counter,
		source:   "inspections",
		help:     "Number of reads of one pod, failed reads included.",
		guidance: "Moves with changes and with waiting pod workers.",
	},
	{
		name:     "evented_pleg_inspection_errors_total",
		kind:     counter,
		source:   "inspection_errors",
		help:     "Number of failed reads of one pod.",
		guidance: "0. Above: the log names the unreadable pods; they are tried again.",
	},
	{
		name:     "evented_pleg_peeks_total",
		kind:     counter,
		source:   "peeks",
		help:     "Number of looks at a pod's known containers one by one, for want of lists.",
		guidance: "0. Above: the runtime's lists, or reads of pods, do not answer. What events name is read all the same.",
	},
	{
		name:     "evented_pleg_lifecycle_events_total",
		kind:     counter,
		source:   "events",
		help:     "Number of pod lifecycle events handed to Watch.",
		guidance: "Moves with every container.",
	},
	{
		name:     "evented_pleg_owed_events_total",
		kind:     counter,
		source:   "owed_events",
		help:     "Number of pod lifecycle events replaced by an owed PodSync, as Watch was full.",
		guidance: "0. Above: the consumer of Watch is slower than the node.",
	},
}
