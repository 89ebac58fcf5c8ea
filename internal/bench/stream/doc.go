// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package stream judges the container event stream of a runtime: what the stream is worth, what is
// wrong with it, and what to tell the people who maintain the runtime.
//
// # Model
//
// A [Judge] is given every message of the stream as it was received, with the time of receipt. It
// decodes messages with the code that the CRI API generates, which shares nothing with package cri.
// For each container and sandbox it remembers the furthest phase that any event or payload has
// shown, and which events came; what contradicts this memory is a [Flaw]. What the stream did not
// tell at all only reads of the runtime can find: [Facts] brings these counts, from the generator.
//
// [Judge.Report] sums up; [Report.Conclude] says it in words.
//
// # Concurrency
//
// A Judge has no lock, no clock and no goroutine: its caller owns it. Memory is bounded by the
// number of containers remembered, see [New].
//
// # Errors
//
// None: whatever a runtime sends is counted.
package stream
