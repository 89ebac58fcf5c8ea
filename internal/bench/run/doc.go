// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package run performs a benchmark run: it starts the processes, drives the load, and judges.
//
// # Model
//
// A run has phases: start, set up the pods, change them for a time, settle, compare, clean up.
// While pods change, the runtime can be restarted or killed, and the consumer of Watch can be
// stalled. Afterwards faults are lifted, and the cache is compared with a full read of the runtime:
// at once, and after another relist, which must leave no difference.
//
// # Concurrency
//
// [Run] returns when everything it started has ended, children included, also when its context ends
// in the middle.
//
// # Errors
//
// Run returns the reason for an unfinished run. A finished run with a bad verdict is not an error:
// see Result.OK.
package run
