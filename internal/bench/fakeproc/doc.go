// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeproc is the fake runtime as a process of its own: a CRI server on a unix socket, and
// beside it, on a second socket, a control server that tells the authoritative history, so that a
// run can be judged by what truly happened.
//
// # Model
//
// [Serve] runs both servers until its context ends. [Control] is the client of the second one: it
// collects the history piece by piece, changes faults, and restarts the runtime in place (its
// containers survive, as a real runtime's do).
//
// # Concurrency
//
// Serve returns only when all it started has ended. A Control is safe for concurrent use.
//
// # Errors
//
// Serve refuses a socket that somebody listens on, and removes one that was left behind.
package fakeproc
