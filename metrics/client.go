// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

// clientCounters are those of a CRI client, which yields them at a scrape, in the order of
// docs/metrics.md. An agent without that client, such as a kubelet, serves none of them.
var clientCounters = []definition{
	{
		name:     "evented_pleg_client_calls_total",
		kind:     counter,
		source:   "client_calls/",
		label:    "method",
		help:     "Number of calls to the runtime, by CRI method.",
		guidance: "The cost of watching. On a quiet node nearly flat: two calls a list.",
	},
	{
		name:     "evented_pleg_client_connects_total",
		kind:     counter,
		source:   "client_connects",
		help:     "Number of connections made to the runtime.",
		guidance: "1, and 1 for each restart of the runtime. Rising: connections are ended.",
	},
	{
		name:     "evented_pleg_client_abandoned_connects_total",
		kind:     counter,
		source:   "client_abandoned",
		help:     "Number of connections given up because the runtime behind them hung.",
		guidance: "0. Above: a hung runtime, or an old one beside its successor.",
	},
	{
		name:     "evented_pleg_client_malformed_items_total",
		kind:     counter,
		source:   "client_malformed",
		help:     "Number of items left out as malformed, incomplete or without a usable ID.",
		guidance: "0. Above: a bug of the runtime or a proxy; pods may be missing from the cache.",
	},
	{
		name:     "evented_pleg_client_duplicate_items_total",
		kind:     counter,
		source:   "client_duplicates",
		help:     "Number of listed items with an ID shown before in the same list.",
		guidance: "0. Above: a bug of the runtime; the later phase holds.",
	},
	{
		name:     "evented_pleg_client_unknown_events_total",
		kind:     counter,
		source:   "client_unknown_events",
		help:     "Number of container events of a type unknown to the client.",
		guidance: "0. Above: a runtime newer than the client. Each costs a read of its pod.",
	},
	{
		name:     "evented_pleg_client_unknown_states_total",
		kind:     counter,
		source:   "client_unknown_states",
		help:     "Number of items in a state outside the CRI, repetitions in later lists apart.",
		guidance: "0. Above: a newer runtime, or damaged answers. The state counts as UNKNOWN.",
	},
	{
		name:     "evented_pleg_client_incomplete_events_total",
		kind:     counter,
		source:   "client_incomplete_events",
		help:     "Number of container events without a needed sandbox or container status.",
		guidance: "0. Above: a bug of the runtime. Each costs a read or a list.",
	},
	{
		name:     "evented_pleg_client_oversized_events_total",
		kind:     counter,
		source:   "client_oversized_events",
		help:     "Number of container events above 16 MiB, the limit of a kubelet's own client.",
		guidance: "0. Above: pods of thousands of containers; a stock kubelet's stream ends.",
	},
	{
		name:     "evented_pleg_client_late_exits_total",
		kind:     counter,
		source:   "client_late_exits",
		help:     "Number of events about an end a second or more before, by the runtime's clock.",
		guidance: "0. Above: shims report ends late. A few after a restart of the runtime.",
	},
	{
		name:     "evented_pleg_client_unattributed_containers",
		kind:     gauge,
		source:   "client_unattributed",
		help:     "Number of containers last listed with neither a pod UID nor a listed sandbox.",
		guidance: "0. Above: containers made by others, or sandboxes lost by the runtime.",
	},
}
