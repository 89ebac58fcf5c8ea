// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package suite

// Scenarios are all of them, in the order in which they run.
var Scenarios = []Scenario{
	{Name: "00-runtime", Source: "the runtime itself: what it really sends", Run: observeRuntime},
}
