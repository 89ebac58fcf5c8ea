// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package worker is the generator under test as a process of its own, so that its CPU time and
// memory are its own.
//
// # Model
//
// The worker holds what a node agent would: a client of the runtime, the cache, the generator, a
// consumer of Watch, and pod workers that wait in the cache. [Serve] takes orders from one stream
// and answers on another; [Process] is the parent's handle of it.
//
// The parent tells the worker what its load has made true (facts). A pod worker picks a pod, takes
// the facts known by then, asks the cache for a status newer than now, and checks that what it gets
// shows them: a status that is older than what the caller already knew is a stale read.
//
// # Concurrency
//
// Serve returns when the order stream ends and all it started has ended. A Process is safe for
// concurrent use; its callbacks come from one goroutine.
//
// # Errors
//
// What keeps the worker from working is sent to the parent, which returns it from [Process.Wait].
package worker
