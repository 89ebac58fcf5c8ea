// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package worker is the generator under test as a process, with CPU time and memory of its own.
//
// # Model
//
// The worker holds the parts of a node agent: a client of the runtime, the cache, the generator, a
// consumer of Watch, and pod workers that wait in the cache. [Serve] answers the parent's calls;
// [Process] makes them.
//
// The parent sends the worker the effects of its load (facts). A pod worker picks a pod, takes the
// facts known by then, asks the cache for a status newer than now, and checks the answer against
// the facts: a status older than the caller's knowledge is a stale read.
//
// # Concurrency
//
// Serve returns when its input ends and everything it started has ended. A Process is safe for
// concurrent use; one callback runs at a time.
//
// # Errors
//
// A failure of the generator ends the news. [Process.Stop] returns the reason.
package worker
