// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite holds the scenarios of the node e2e tests.
//
// # Model
//
// TestNode runs every [Scenario] on every runtime of -runtime, as subtests runtime/scenario. A
// scenario starts a Node (a private runtime, a proxy, a client for the other side), starts agents,
// disturbs them, and compares the agent's cache with the runtime's own lists. Figures are measured,
// never asserted tightly: bounds only end hangs.
//
// The test binary is the supervisor and the first process of the suite's namespaces (package
// unshare), the suite, and the agents.
//
// # Concurrency
//
// The scenarios of a runtime run in turn, each on its test's goroutine; as many runtimes as
// -test.parallel at a time.
package suite
