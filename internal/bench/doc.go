// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench holds the parts shared by the processes of pleg-bench, and evaluates their reports.
//
// # Model
//
// A run has three processes, each with its own costs: the runtime (the fake runtime as a child, or
// a real runtime), the generator under test with its cache, Watch consumer and pod workers (package
// worker, a child), and the parent, which drives the load through CRI calls (package load), knows
// the history, and judges. Every process stamps times with [Stamp], so times are comparable.
//
// The runtime's own history and the events delivered by Watch meet in a [Ledger]. At the end, the
// cache's content and a full read of the runtime meet in [Compare]. A [Result] holds everything;
// docs/pleg-bench.md documents its JSON.
//
// # Concurrency
//
// Types here have no locks: one goroutine of the parent owns each.
package bench
