// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cache holds the last known status of every pod, and lets pod workers wait for a status
// that is new enough.
//
// # Model
//
// Every status is true as of a time: the start of the read of the runtime by which the status was
// confirmed. A read is true at some moment after its start, so a status as of t contains every
// change from before t.
// [Cache.AsOf] is that time for one pod: the latest of the write of its status ([Cache.Set]), the
// reads that found the phases unchanged ([Cache.Observe]), the read that found the pod gone
// ([Cache.Delete]) and the global time ([Cache.Advance]), which stands for a read of everything.
//
// A list shows phases, and a status is more: limits, reasons, exit codes, addresses. So an entry
// has a second time, [Cache.ReadAt], the start of the last read of all statuses behind it.
// [Cache.GetNewerThan] returns when ReadAt is after t; [Cache.GetPhasesNewerThan] when AsOf is. A
// write as of t is refused when AsOf is after t: the entry is newer (KEP-3386, "Pod Status update
// in the Cache"). Deletes leave a tombstone, which refuses late writes of the pod, until
// [Cache.Prune] rules out such writes.
//
// Times must come from time.Now of this process: they carry a monotonic reading, so that steps of
// the wall clock change nothing. A time without a monotonic reading (parsed, or stripped by
// Round(0)) cannot be compared across a step; GetNewerThan takes the time of the call instead.
//
// An error is kept beside the last good status, never instead of it: a reader always gets a status,
// never nil.
//
// A waiter is a demand: [Cache.Demand] wakes the generator, and [Cache.TakeDemand] returns the pods
// to read, and the times after which the reads of each kind must begin, so a waiter costs a read of
// its pod and not a relist.
//
// # Concurrency
//
// All methods are safe for concurrent use; a mutex owns everything and is never held while
// anything blocks. Readers share statuses, which must not change after Set.
//
// # Errors
//
// Readers get the error of the pod's last read, as given to Set. When its context ends,
// GetNewerThan returns an error that wraps context.Cause, beside the last known status.
package cache
