// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeproc is the fake runtime as a process: a CRI server on a unix socket, and calls on
// its standard input and output for the authoritative history, by which a run is judged.
//
// # Model
//
// [Serve] runs until its context ends, or its input if it has one. [Control] is the parent's side:
// Control collects the history piece by piece, changes faults, and restarts the runtime in place
// (its containers survive, as a real runtime's do).
//
// # Concurrency
//
// Serve returns after everything it started has ended, but for a read of its input. A Control is
// safe for concurrent use.
//
// # Errors
//
// Serve refuses a socket with a listener, and removes a socket left behind.
package fakeproc
