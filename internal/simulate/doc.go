// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate hunts for a history in which the generator is wrong.
//
// # Model
//
// A history is a list of lines, each a command (see command.go): changes of the runtime, the fate
// of their events, faults of reads, waiters, and the passage of time. [Generate] makes a history
// from a seed; files under testdata are written by hand. Both run the same way ([Run]), in a
// testing/synctest bubble, so hours pass in milliseconds.
//
// There are two tiers. In the first the generator reads a toy runtime through its own [pleg.Source]
// and [pleg.Stream]: thousands of histories a second, torn reads, any order of delivery. In the
// second the generator reads the fake runtime over gRPC through the real client.
//
// The oracle knows the runtime's authoritative history, what crossed the boundary between generator
// and runtime, and the public interface of generator and cache, and nothing else. From these it
// keeps a model of why anything may be read (pace.go, podpace.go), of how long a waiter may
// wait for a read (fair.go) and of how soon a change must be told (prompt.go). It looks whenever
// something happens, also from within the generator's loop through the Metrics that it is given,
// and checks the eleven invariants of the design: invariant.go has the list, and where each is
// checked.
//
// [Shrink] reduces a failure to a short script, which can be stored under testdata.
//
// # Concurrency
//
// Everything of a run lives in a bubble. A history fixes every delay and every fault; the order of
// two goroutines within an instant of virtual time is not fixed.
//
// # Errors
//
// A [Violation] names the broken invariant, the time, and the finding. Senseless commands are
// errors in strict mode and ignored otherwise, so that a shortened history still runs.
package simulate
