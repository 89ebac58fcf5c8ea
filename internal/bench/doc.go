// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench holds what the processes of pleg-bench share, and what it makes of their reports.
//
// # Model
//
// A run has three processes, so that each pays for itself: the runtime (the fake one as a child, or
// a real one), the generator under test with its cache, its Watch consumer and its pod workers
// (package worker, a child), and the parent, which drives the load through CRI calls (package
// load), knows what happened, and judges. Every process stamps times with [Stamp], so that they can
// be compared.
//
// The runtime's own history of changes and the events that Watch delivered meet in a [Ledger]. At
// the end, the cache's content and a full read of the runtime meet in [Compare]. All of it ends in
// a [Result], whose JSON is documented in docs/pleg-bench.md.
//
// # Concurrency
//
// Types here have no locks: one goroutine of the parent owns each.
package bench
