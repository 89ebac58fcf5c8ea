// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package plegtest judges a generator in the tests of its embedder, by observations alone: the
// statuses in the cache, the events of Watch, the changes in the runtime.
//
// # Model
//
// A [Checker] holds a generator and its agent to three promises:
//
//   - Watch keeps its order. The events of an ID are a subsequence of Started, Died, Removed, each
//     at most once ([Repeated], [Disordered]); the cache shows a change before Watch delivers the
//     event, unless an error stands beside an older status ([Ahead]), and no earlier phase
//     afterwards ([WentBack]).
//   - At rest the cache equals the runtime ([Differs]), and Watch has delivered every change
//     ([Lost]).
//   - Nothing starts twice: no two sandboxes of a pod, and no two containers of a pod with the same
//     name, run at once ([StartedTwice]).
//
// The caller feeds the Checker with the observations that the test has: [Checker.Shows] and
// [Checker.Event] suffice for the order, [Checker.Rest] adds the comparison, [Checker.Changed] the
// double starts. [Compare] compares without a Checker.
//
// A generator takes a phase back when a read refutes an event of the runtime. A test with a runtime
// that announces false changes allows as many violations [WentBack] as the generator counts
// (Overruled and Regressions of [pleg.Stats]).
//
// # Concurrency
//
// A Checker is safe for concurrent use. One Checker judges one generator: a second generator over
// the same cache begins a Watch of its own, and needs a Checker of its own. Memory is O(observed
// IDs).
//
// # Errors
//
// A violation is no error of a call: [Checker.Err] returns all of them.
package plegtest
