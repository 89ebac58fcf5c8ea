// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package events records Kubernetes Events as series, as the Events redesign proposal asks for. The
// API server is not harmed, whatever happens, and the counts are right.
//
// # Model
//
// An occurrence is a call of a recorder. Occurrences are isomorphic if they agree in type, reason,
// action, reporter, regarding and related object; with less than six minutes between two they are a
// series. The first note is stored. Only recorders with the older interface ([LegacyRecorder])
// distinguish a bounded number of notes.
//
// The calls of a series:
//
//	first occurrence       create, without a series
//	second                 patch: count and last time, state Ongoing
//	10 s after the last    patch, while the object has tokens: slow loops are shown as they are
//	2, 4, 8, 16 min after  patch: the first occurrence so long after the last write
//	each 30 min ±10 %      patch: likewise (the server keeps an object for another hour)
//	other ones             no call
//	6 min of silence       patch: the final count, state Finished
//
// A write carries the count of its moment. The state is an annotation: the v1 API has no field.
//
// The object's name ends in the time at which the series began, in the form of client-go's names:
// kubectl shows Events in the order of their names. A restarted process continues the series of its
// predecessor. Their names are in the roster, an Event with a constant name, which a node may read
// with an empty patch. A patch carries the resourceVersion; where the content of an object is in
// doubt, a read comes first. A series left Ongoing by a killed process continues as a lower bound
// (AnnotationAtLeast), or becomes Unknown.
//
// # What holds back
//
// New series take tokens, and each pair of objects may have a bounded number of series. Writes wait
// in a bounded queue, in the order of emission. A gate closes after 429, 5xx, 401 or a failed
// connection; a single call then probes the server. A hanging or broken call, a 500 or a 504 delays
// its own object only; after a dozen, with successes of others between them, the series is given
// up. A refusal (400, 403, 413, 422, a namespace that goes away) before the first write drops the
// series for six minutes; a stored series goes on counting. A 403 after a success, or a 409 twice,
// holds the calls of its kind and namespace.
//
// # Concurrency
//
// Recorders are safe for concurrent use. They block on a short lock only, start nothing, and
// neither format nor allocate for an active series; those with the older interface format each
// message. Four writers (Options.Writers) make all calls, without the lock.
//
// # Errors
//
// Recorders return nothing: rejected events are logged and counted. New names every invalid option.
// Run and the Start methods return [ErrRunning], [ErrShutdown] and [ErrNoSink]; ShutdownWithContext
// returns an [*UnsentError]. In [Broadcaster.Stats], emitted is always the sum of acknowledged,
// dropped and unsent.
package events
