// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package faults holds a test and nothing else: every fault of the fake runtime, one after the
// other, against pleg-bench watch and against an agent. It writes what shows of each to
// docs/faults.md, and fails when a fault shows nowhere, or when docs/troubleshooting.md does not
// lead from it to its cause.
//
//	go test ./internal/faults -update                        # write docs/faults.md
//	go test ./internal/faults -args -promtool=/path/promtool # let Prometheus evaluate the alerts, as CI does
package faults
