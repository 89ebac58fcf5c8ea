// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
)

// eventsMetrics are those of an Event recorder, which yields them at a scrape, in the order of
// docs/metrics.md.
var eventsMetrics = []definition{
	{
		name:     "event_recorder_emitted_total",
		kind:     counter,
		source:   "events_emitted",
		help:     "Number of events given to the recorder.",
		guidance: "Each ends up acknowledged, dropped or is still unsent.",
	},
	{
		name:     "event_recorder_acknowledged_total",
		kind:     counter,
		source:   "events_acknowledged",
		help:     "Number of events known to the API server, as an object or in a count.",
		guidance: "Follows emitted within seconds; a running series within its heartbeat.",
	},
	{
		name:   "event_recorder_dropped_total",
		kind:   counter,
		source: "events_dropped/",
		label:  "reason",
		help:   "Number of events given up, by reason.",
		guidance: "0. " +
			"invalid, rejected: a bug of the emitter. " +
			"queue_full, object_cap: a storm. " +
			"shutdown: the server was away.",
	},
	{
		name:     "event_recorder_calls_total",
		kind:     counter,
		source:   "event_calls/",
		label:    "kind",
		help:     "Number of calls to the API server, by kind.",
		guidance: "Three a series, six more in its first minute, then one in 5 to 30 minutes.",
	},
	{
		name:     "event_recorder_retries_total",
		kind:     counter,
		source:   "event_retries/",
		label:    "reason",
		help:     "Number of calls to the API server to be made again, by the failure's reason.",
		guidance: "Rising: the server is overloaded or away; nothing is lost yet.",
	},
	{
		name:     "event_recorder_rejections_total",
		kind:     counter,
		source:   "event_rejections/",
		label:    "reason",
		help:     "Number of calls refused by the API server for good, by its reason.",
		guidance: "0. Forbidden: the role lacks create or patch on events.",
	},
	{
		name:     "event_recorder_series_total",
		kind:     counter,
		source:   "event_series/",
		label:    "transition",
		help:     "Number of transitions of series of events, by kind.",
		guidance: "evicted: more series than the table holds. abandoned: a process was killed.",
	},
	{
		name:     "event_recorder_annotations_dropped_total",
		kind:     counter,
		source:   "event_annotations_dropped",
		help:     "Number of annotations left out as unacceptable to the API server.",
		guidance: "0.",
	},
	{
		name:     "event_recorder_watch_dropped_total",
		kind:     counter,
		source:   "event_watch_dropped",
		help:     "Number of events missed by a slow watcher in the process.",
		guidance: "0. The API server got them all the same.",
	},
	{
		name:     "event_recorder_series",
		kind:     gauge,
		source:   "event_series_active",
		help:     "Number of series in the table.",
		guidance: "Bounded. At its bound, quiet series are finished early.",
	},
	{
		name:     "event_recorder_queue_length",
		kind:     gauge,
		source:   "event_queue_length",
		help:     "Number of series that owe the API server a call.",
		guidance: "0 between bursts. Growing: the server is slow or away.",
	},
	{
		name:     "event_recorder_unsent",
		kind:     gauge,
		source:   "events_unsent",
		help:     "Number of events unknown to the API server so far.",
		guidance: "The loss if the process died now.",
	},
	{
		name:     "event_recorder_gate_closed_seconds",
		kind:     gauge,
		source:   "event_gate_closed_seconds",
		help:     "Time in seconds until calls go on, after the server's request or failure.",
		guidance: "0. Above: at most 30 seconds at a time, or 5 minutes at the server's request.",
	},
	{
		name:   "event_recorder_closed_scopes",
		kind:   gauge,
		source: "event_scopes_closed/",
		label:  "scope",
		help:   "Number of scopes in which calls fail, by kind: server, namespace, call, object.",
		guidance: "0. A scope is tried by one call at a time, and events of others go on. " +
			"namespace: a webhook or a limit of a tenant. " +
			"call: a role.",
	},
}

// NewEvents registers the metrics of an Event recorder: values is its Metrics method, which scrapes
// call from any goroutine. If a name is taken, or an argument is nil, nothing is registered.
func NewEvents(registry Registry, values func(yield func(name string, v float64))) error {
	switch {
	case registry == nil:
		return errNoRegistry
	case values == nil:
		return errors.New("metrics: values is nil: give the Metrics method of an Event recorder's broadcaster")
	}
	source := new(gaugeSource)
	source.SetGauges(values)
	err := registry.CustomRegister(newCollector(source, eventsMetrics, Options{}))
	if err != nil {
		return fmt.Errorf("metrics: register event_recorder_*: %w (a registry takes one set)", err)
	}
	return nil
}
