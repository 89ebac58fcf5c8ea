// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package faults holds a single test: every fault of the fake runtime, in turn, against pleg-bench
// watch and against an agent. It writes the signs of each to docs/faults.md, and fails when a fault
// has no sign, or when docs/troubleshooting.md does not lead from a sign to its cause.
//
//	go test ./internal/faults -update                        # write docs/faults.md
//	go test ./internal/faults -args -promtool=/path/promtool # let Prometheus evaluate the alerts, as CI does
package faults
