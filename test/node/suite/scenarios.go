// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package suite

// Scenarios are all of them, in the order in which they run.
var Scenarios = []Scenario{
	{Name: "01-lifecycle", Source: "KEP-3386, Test Plan: the PodLifecycleEvent is generated and the status updated when CRI events come", Run: lifecycle},
}
