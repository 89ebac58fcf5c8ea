// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeproc is the fake runtime as a process: a CRI server on a unix socket, and a control
// server on a second socket with the authoritative history, by which a run is judged.
//
// # Model
//
// [Serve] runs both servers until its context ends. [Control] is the client of the control server:
// Control collects the history piece by piece, changes faults, and restarts the runtime in place
// (its containers survive, as a real runtime's do).
//
// # Concurrency
//
// Serve returns after everything it started has ended. A Control is safe for concurrent use.
//
// # Errors
//
// Serve refuses a socket with a listener, and removes a socket left behind.
package fakeproc
