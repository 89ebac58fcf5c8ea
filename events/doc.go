// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package events records Kubernetes Events as series, as the Events redesign proposal asks for. The
// API server is not harmed, whatever happens, the counts are right, and trouble of a tenant stays
// with that tenant.
//
// # Model
//
// An occurrence is a call of a recorder. Occurrences are isomorphic if they agree in type, reason,
// action, reporter, regarding and related object; with less than six minutes between two they are a
// series. The first note is stored. Only recorders with the older interface ([LegacyRecorder])
// distinguish a bounded number of notes.
//
// The calls of a series, while its object has tokens:
//
//	first occurrence       create, without a series
//	second                 patch: count and last time, state Ongoing
//	10 s after the last    patch at once: slow loops are shown as they are
//	each 10 s, first minute  patch, if the count has grown
//	then 1, 2, 4 min after, and each 4 min 45 s
//	                       patch: the first occurrence so long after the last write
//	other ones             no call
//	6 min of silence       patch: the final count, state Finished
//
// Without tokens, the patches come 2, 4, 8, 16 and then 30 min ±10 % after the last write. A write
// carries the count of its moment. The state is an annotation: the v1 API has no field.
//
// The object's name ends in the time at which the series began, in the form of client-go's names:
// kubectl shows Events in the order of their names. A restarted process continues the series of its
// predecessor. They are in the roster, an Event with a constant name, which a node may read with an
// empty patch. A patch carries the resourceVersion; where the content of an object is in doubt, a
// read comes first. A series left Ongoing by a killed process continues as a lower bound
// (AnnotationAtLeast), or becomes Unknown.
//
// # What holds back
//
// New series take tokens, and each pair of objects may have a bounded number of series. An event
// without a token is counted in a combined series rather than dropped. Writes wait in a bounded
// queue, in the order of emission. Where the queue or the table is full, the namespace with the
// most series gives way.
//
// A call waits for the rate limiter of the own client before its time begins. Where nothing was
// sent, the server is not to blame, and no series is given up.
//
// A failed call (429, 5xx, a connection that hangs or breaks) closes the smallest scope that
// explains it: the object; the namespace, once several of its objects fail with no success between;
// the server, once several namespaces do, or nobody listens. A closed scope is tried again by a
// single call at growing intervals; other scopes go on. A call at which the server fails (500, 504,
// hangs, breaks off) for an hour, a dozen times, while it answers others, is given up; 429 and 503
// mean later, and are waited for. A refusal (400, 403, 413, 422, a namespace that goes away) before
// the first write drops the series for six minutes; a stored series goes on counting. A 403 after a
// success, or a second 409 beside another object's failure, holds the calls of its kind and
// namespace; where others are taken, a second 403 is the object's, which is given up within ten
// minutes.
//
// # Concurrency
//
// Recorders are safe for concurrent use. They block on a short lock only, start nothing, and
// neither format nor allocate for an active series; those with the older interface format each
// message. Three times as many goroutines as Options.Writers make all calls, without the lock: four
// calls at a time, and as many again that hang or try a closed scope.
//
// # Errors
//
// Recorders return nothing: rejected events are logged and counted. New names every invalid option.
// Run and the Start methods return [ErrRunning], [ErrShutdown] and [ErrNoSink]; ShutdownWithContext
// returns an [*UnsentError]. In [Broadcaster.Stats], emitted is always the sum of acknowledged,
// dropped and unsent.
package events
