// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate hunts for a history in which the generator is wrong.
//
// # Model
//
// A history is a list of lines, each one command (see command.go): what the runtime does, what its
// stream makes of it, how reads go wrong, who waits, and how time passes. [Generate] makes one from
// a seed; a file under testdata is one written by hand. Both run the same way ([Run]), in a
// testing/synctest bubble, so that hours pass in milliseconds.
//
// There are two tiers. In the first the generator reads a toy runtime through its own [pleg.Source]
// and [pleg.Stream]: thousands of histories a second, torn reads, any order of delivery. In the
// second it reads the fake runtime over gRPC through the real client.
//
// The oracle knows the runtime's authoritative history, what crossed the boundary between generator
// and runtime, and the public interface of generator and cache, and nothing else. From these it
// keeps a model of why anything may be read (pace.go, podpace.go), of how long a pod may be left
// alone (overdue.go) and of how soon a change must be told (prompt.go). It looks whenever something
// happens, also from within the generator's loop through the Metrics that it is given, and checks
// the eleven invariants of the design: see invariant.go for the list and where each is checked.
//
// A failure is reduced by [Shrink] to a short script that can be kept under testdata.
//
// # Concurrency
//
// Everything of one run lives in one bubble. A history fixes every delay and every fault; which of
// two goroutines runs first within one instant of virtual time is not fixed.
//
// # Errors
//
// A [Violation] says which invariant broke, when, and how. Commands that make no sense are errors
// in strict mode and ignored otherwise, so that a shortened history still runs.
package simulate
