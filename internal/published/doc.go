// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package published is the evented PLEG as first published by the enhancement, for tests only: the
// simulation must find its faults, or its silence about ours would mean nothing.
//
// # Model
//
// Two writers share a cache with a time for each entry, and the newer time wins. The relist writes
// its results under the time of its begin; the event loop writes the payload of each event under
// the stamp of the runtime's clock, and takes the payload for fresh. A write moves the entry's
// time, and a global time, moved to now every five seconds while events are in use, stands for all
// entries. A broken stream is opened again at once, five times, and then given up for polling.
// Watch drops events without room.
//
// Known to be wrong on purpose: the tests of package simulate list the faults, and the seeds needed
// to find each.
//
// # Concurrency
//
// Run owns its goroutines and returns when they have ended. The cache and the records have a mutex
// each.
//
// # Errors
//
// A failed read of statuses is stored unchanged, in place of the status before.
package published
