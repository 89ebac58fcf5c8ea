// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package suite

// Scenarios are all of them, in the order in which they run.
var Scenarios = []Scenario{
	{Name: "01-lifecycle", Source: "KEP-3386, Test Plan: the PodLifecycleEvent is generated and the status updated when CRI events come", Run: lifecycle},
	{Name: "02-stress", Source: "KEP-3386, Test Plan: stress test", Run: stress},
	{Name: "03-recovery", Source: "KEP-3386, Test Plan: recovery test", Run: recovery},
	{Name: "04-restart", Source: "KEP-3386, Test Plan: retry with backoff logic; #129827", Restarts: true, Run: restart},
	{Name: "05-away", Source: "KEP-3386, Test Plan: retry with backoff logic, more than five attempts", Restarts: true, Run: away},
	{Name: "06-stale-payloads", Source: "KEP-3386, Pod Status update in the Cache; containerd sends older payloads with newer stamps", Run: stale},
	{Name: "07-no-event", Source: "KEP-3386, Risks and Mitigations: kube_pod_missed_events", Run: noEvent},
}
