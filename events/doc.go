// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package events records Kubernetes Events as series, in the way that the Events redesign proposal
// asks for: whatever happens, the API server is not harmed, and the counts are right.
//
// # Model
//
// An event is one call of a recorder: an occurrence. Occurrences that agree in type, reason,
// action, reporter, the object that they are about and the related one are isomorphic; those with
// less than six minutes between one and the next are a series. The note is not part of that: the
// first one of a series is stored. Only recorders with the older interface ([LegacyRecorder]),
// whose callers use one reason for different things, tell a bounded number of notes apart.
//
// The life of a series, and all of the calls that it costs:
//
//	first occurrence       create, without a series
//	second                 patch: count and last time, state Ongoing
//	10 s after the last    patch, while the object has tokens: slow loops are shown as they are
//	2, 4, 8, 16 min after  patch: the first occurrence that comes so long after the last write
//	each 30 min ±10 %      patch: likewise (the server keeps it for another hour)
//	other ones             no call
//	6 min of silence       patch: the final count, state Finished; 6 min after the last
//
// A write carries the count as it is at that moment. The state is an annotation, because the v1 API
// has no field for it.
//
// The name of a series' object ends in the time at which it began, in the form of client-go's
// names, because kubectl shows Events in the order of their names. A process that restarts
// continues the series that go on. It finds them by its roster, one Event with a name that is
// always the same, which holds their names; a node may read it with an empty patch. A patch carries
// the resourceVersion; where it is in doubt what the object holds, it is read. A series that a
// killed process left Ongoing goes on up to a heartbeat and the threshold after its stored last
// time, with a count that is said to be a lower bound (AnnotationAtLeast), or becomes Unknown.
//
// # What holds back
//
// A new series takes a token from a bucket per regarding object, related object and reason, and a
// pair of these may have so many series and no more. Writes wait in one bounded queue, in the order
// of emission. A gate over all of them closes when the server answers 429, 5xx or 401, or cannot be
// reached: for the larger of Retry-After (at most five minutes) and an exponential delay with
// jitter, at most 30 s, after which one call finds out. Nothing is lost meanwhile but what does not
// fit into the table, and occurrences of series that are in the table always fit. What hangs,
// breaks off or gets a 500 or 504 waits by itself, and is given up when others have got through a
// dozen times. What the server refuses before it was stored (400, 403, 413, 422, a namespace that
// is going away) is dropped, counted by its reason, logged as an error once in ten minutes for each
// reason, and not tried again for six minutes; what is stored goes on counting. A 403 where the
// call was allowed before holds such calls in that namespace for five minutes before it is
// believed.
//
// # Concurrency
//
// Recorders may be used from any goroutine. They never block on anything but a short lock, start
// nothing, format nothing for a series that is active, and allocate nothing then; those with the
// older interface format each message, which is part of its identity there. Four writers
// (Options.Writers) make all calls and hold no lock while they do. What is about one object reaches
// the server in the order of emission; with one writer everything does.
//
// # Errors
//
// Recorders return nothing: what they cannot take is logged and counted. New names every option
// that makes no sense. Run and the Start methods return [ErrRunning], [ErrShutdown] and
// [ErrNoSink]; ShutdownWithContext returns an [*UnsentError] that says what was left.
// [Broadcaster.Stats] always adds up: what was emitted is what was acknowledged, dropped by a
// reason, or is still unsent.
package events
