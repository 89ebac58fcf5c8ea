// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package published is the evented PLEG as the enhancement first published it, for tests only: the
// simulation must find what is wrong with it, or it could not be believed when it finds nothing
// wrong with ours.
//
// # Model
//
// Two writers share one cache whose entries carry a time, and the newer time wins. The relist
// writes what it read under the time at which it began; the event loop writes the payload of each
// event under the stamp of the runtime's clock, and takes it for fresh. A write moves the entry's
// time, and a global time, moved to now every five seconds while events are in use, stands for all
// entries. A broken stream is opened again at once, five times, and then given up for polling.
// Watch drops what it has no room for.
//
// Known to be wrong, and meant to be: see the tests of package simulate, which list what is found
// after how many seeds.
//
// # Concurrency
//
// Run owns its goroutines and returns when they have ended. The cache and the records have a mutex
// each.
//
// # Errors
//
// A failed read of statuses is stored as it is, in place of the status before.
package published
