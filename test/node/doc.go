// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package node is the root of the node e2e tests: the PLEG against a real CRI runtime, with real
// containers, real restarts and a disturbed wire.
//
// # Model
//
// The test binary of package suite (tag e2e) is the supervisor, the suite and the agents. The
// supervisor runs the suite in namespaces that end with it (package unshare). The suite runs
// scenarios in order; each gets a private runtime (packages runtimes and daemon), a proxy between
// the runtime and the agent (package criproxy), and the requested agents (internal/bench/worker).
//
//	node-e2e (supervisor)
//	  └─ node-e2e (first process of the namespaces)
//	       └─ node-e2e (suite)
//	            ├─ containerd or CRI-O ── shims ── containers (package workload)
//	            │      ▲ CRI
//	            │   proxy (in the suite's process, package criproxy)
//	            │      ▲ CRI
//	            └─ node-e2e (agent; killed, stopped and restarted at will)
//
// The harness packages are ordinary packages: their own tests need no root, no
// runtime and no network, and run with every other test of this module.
// Everything that needs root is behind the tag.
//
// # Requirements
//
// Root, cgroups (v1 or v2), overlayfs, Go and a C compiler. The runtime and runc
// are built once from the module registry (package components) into the ignored
// build folder of the repository. With
// NODE_E2E_ENDPOINT set, a runtime that is already there is used instead.
package node
