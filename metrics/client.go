// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

// clientCounts are those of a CRI client, which yields them at a scrape, in the order of
// docs/metrics.md. An agent without that client, such as a kubelet, serves none of them.
var clientCounts = []gaugeDefinition{
	{definition{name: "evented_pleg_client_calls_total", kind: counter, source: "client_calls/", label: "method",
		help: "Number of calls to the runtime, by CRI method.",
		read: "What watching costs the runtime. On a quiet node nearly flat: two calls for each list."},
		byLabel("client_calls/")},
	{definition{name: "evented_pleg_client_connects_total", kind: counter, source: "client_connects",
		help: "Number of connections made to the runtime.",
		read: "1, and one more for each restart of the runtime. Rising: it, or a proxy, ends connections."},
		plain("client_connects")},
	{definition{name: "evented_pleg_client_abandoned_connects_total", kind: counter, source: "client_abandoned",
		help: "Number of connections that were given up because the runtime behind them hung.",
		read: "0. Above: the runtime hung, or an old one was still there beside the one that has its socket."},
		plain("client_abandoned")},
	{definition{name: "evented_pleg_client_malformed_items_total", kind: counter, source: "client_malformed",
		help: "Number of items of lists, answers and events that were left out, as they are malformed or incomplete, or have an ID or a pod's UID that cannot be used.",
		read: "0. Above: a bug of the runtime, or a proxy that damages messages; pods may be missing from the cache."},
		plain("client_malformed")},
	{definition{name: "evented_pleg_client_duplicate_items_total", kind: counter, source: "client_duplicates",
		help: "Number of listed items with an ID that the same list had shown before.",
		read: "0. Above: a bug of the runtime; the later phase holds."},
		plain("client_duplicates")},
	{definition{name: "evented_pleg_client_unknown_events_total", kind: counter, source: "client_unknown_events",
		help: "Number of container events of a type that the client does not know; they were skipped.",
		read: "0. Above: the runtime is newer than the client. What such an event should have told comes from lists."},
		plain("client_unknown_events")},
	{definition{name: "evented_pleg_client_unattributed_containers", kind: gauge, source: "client_unattributed",
		help: "Number of containers of the last list without a pod UID, whose sandbox the list does not show either. They belong to no pod.",
		read: "0. Above: containers that something else than a kubelet has made, or sandboxes that the runtime has lost."},
		plain("client_unattributed")},
}
