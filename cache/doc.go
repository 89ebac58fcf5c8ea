// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cache holds the last known status of every pod, and lets pod workers wait for one that is
// new enough.
//
// # Model
//
// Every status is true as of a time: the start of the read of the runtime that confirmed it. A read
// is true at some moment after it began, so a status as of t contains every change that had
// happened by t. [Cache.AsOf] is that time for one pod: the latest of the write of its status
// ([Cache.Set]), the reads that found it unchanged ([Cache.Observe]), the read that found it gone
// ([Cache.Delete]) and the global time ([Cache.Advance]), which stands for a read of everything.
//
// One predicate decides everything. A status is newer than t when AsOf is after t: then
// [Cache.GetNewerThan] returns, at once or by being woken. A write as of t is refused when AsOf is
// after t: it is older than what is known (KEP-3386, "Pod Status update in the Cache"). Deletes
// leave a tombstone, so that a late write of a pod that is gone is refused too, until [Cache.Prune]
// says that no such write can come.
//
// Times must come from time.Now of this process: they carry a monotonic reading, so that steps of
// the wall clock change nothing. A time without one (parsed, or stripped by Round(0)) cannot be
// compared across a step; GetNewerThan takes it as the time of the call.
//
// An error is kept beside the last good status, never instead of it: a reader always gets a status
// that is not nil.
//
// A writer that knows a pod to be unchanged by other means than a read may say so with Observe, too
// (pleg's Config.AnswersFromMemory). AsOf is then the time of that knowledge.
//
// A waiter is a demand: [Cache.Demand] wakes the generator and [Cache.TakeDemand] tells it which
// pods to read, and after which times, so that a waiter costs one read of one pod and not a relist.
//
// # Concurrency
//
// All methods are safe for concurrent use; one mutex owns everything and is never held while
// anything blocks. Statuses are shared between readers and must not be changed after they were
// given to Set.
//
// # Errors
//
// Readers get the error that the last read of the pod recorded, as it was given to Set.
// GetNewerThan whose context ends returns an error that wraps context.Cause, beside the last known
// status.
package cache
