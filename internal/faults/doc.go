// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package faults holds a single test: every fault of the fake runtime, in turn, against pleg-bench
// watch and against an agent. It writes the signs of each to docs/faults.md, and fails when a fault
// has no sign, or when docs/troubleshooting.md does not lead from a sign to its cause.
//
//	go test ./internal/faults                        # the first fault of some sections
//	go test ./internal/faults -promtool=PATH         # all faults and their alerts, as .ci/alerts
//	go test ./internal/faults -update -promtool=PATH # write docs/faults.md
package faults
