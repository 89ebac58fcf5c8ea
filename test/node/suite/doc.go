// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite holds the scenarios of the node e2e tests: the PLEG against a real CRI runtime,
// with real containers, real restarts and a disturbed wire.
//
// # Model
//
// TestNode runs every [Scenario] on every runtime of -runtime, as subtests runtime/scenario. A
// scenario is a [T]: a private runtime (packages runtimes and daemon), a proxy between the runtime
// and the agents (package criproxy), and a client for the other side. It starts agents
// (internal/bench/worker), disturbs them, and compares their caches with the runtime's own lists.
// Figures are measured, never asserted tightly: bounds only end hangs.
//
//	node-e2e (supervisor)
//	  └─ node-e2e (first process of the namespaces of package unshare)
//	       └─ node-e2e (suite)
//	            ├─ containerd or CRI-O ── shims ── containers (package workload)
//	            │      ▲ CRI
//	            │   proxy (in the suite's process)
//	            │      ▲ CRI
//	            └─ node-e2e (agent; killed, stopped and restarted at will)
//
// The packages beside this one are ordinary packages: their own tests need no root, no runtime and
// no network, and run with every other test of this module.
//
// # Concurrency
//
// The scenarios of a runtime run in turn, each on its test's goroutine; as many runtimes as
// -test.parallel at a time.
package suite
