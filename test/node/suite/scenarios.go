// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

// Scenarios are all of them, in the order in which they run.
var Scenarios = []Scenario{
	{Name: "00-runtime", Source: "KEP-3386, Design Details: what the runtime sends, and how soon", Run: observe},
	{Name: "01-lifecycle", Source: "KEP-3386, Test Plan: the PodLifecycleEvent is generated and the status updated when CRI events come", Run: lifecycle},
	{Name: "02-stress", Source: "KEP-3386, Test Plan: stress test", Run: stress},
	{Name: "03-recovery", Source: "KEP-3386, Test Plan: recovery test", Run: recovery},
	{Name: "04-restart", Source: "KEP-3386, Test Plan: retry with backoff logic; #129827", Restarts: true, Run: restart},
	{Name: "05-away", Source: "KEP-3386, Test Plan: retry with backoff logic, more than five attempts", Restarts: true, Run: away},
	{Name: "06-stale-payloads", Source: "KEP-3386, Pod Status update in the Cache; containerd sends older payloads with newer stamps", Run: stale},
	{Name: "07-no-event", Source: "KEP-3386, Risks and Mitigations: kube_pod_missed_events", Run: noEvent},
	{Name: "08-stalled-agent", Source: "KEP-3386, dependencies: degraded performance without an error; containerd blocks on a subscriber that does not read", Run: stalled,
		Private: true, Why: "it stops the runtime for every client by not reading its events"},
	{Name: "09-replay", Source: "containerd gives the backlog of up to 5 minutes to the first subscriber; KEP-3386, Pod Status update in the Cache", Run: replay},
	{Name: "10-clients", Source: "KEP-3386, Proposal: another entity changes the state of the node; crictl beside the kubelet", Run: clients},
	{Name: "11-killed", Source: "KEP-3386, Proposal: the state changes without the kubelet; a killed shim tells of its container late", Run: killed,
		Private: true, Why: "it kills shims of the runtime"},
	{Name: "12-wire", Source: "KEP-3386, Design Details: errors in the grpc connection; the stream's quirks", Run: wire},
	{Name: "13-static-pod", Source: "#120941, #121003, #121349, #123087: static pods started twice or never; an old sandbox's DELETED", Run: static},
	{Name: "14-wall-clock", Source: "KEP-3386, Timestamp of the Pod Status: two clocks in one field", Run: clock},
	{Name: "15-newer-than", Source: "KEP-3386, Risks and Mitigations: pod workers stuck at GetNewerThan; #124704", Run: newer},
	{Name: "16-idle-cost", Source: "KEP-3386, Goals: reduce steady-state CPU usage", Run: idle},
	{Name: "17-conformance", Source: "what the fake runtime's profiles claim of the real ones", Run: conform,
		Private: true, Why: "its transcript is that of one version"},
	{Name: "18-soak", Source: "KEP-3386, Test Plan: retry with backoff logic, for as long as you like (NODE_E2E_SOAK=30m)", Restarts: true, Run: soak},
}
