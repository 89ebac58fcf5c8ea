// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package events records Kubernetes Events as series, in the way that the Events redesign proposal asks for: whatever happens, the
// API server is not harmed, and the counts are right.
//
// # Model
//
// An event is one call of a recorder: an occurrence. Occurrences that agree in type, reason, action, reporter, the object that they are about and
// the related one are isomorphic; those with less than six minutes between one and the next are a series. The note is not part of that: the first
// one of a series is stored.
//
// The life of a series, and all of the calls that it costs:
//
//	first occurrence    create, without a series
//	second              patch: count and last time, state Ongoing
//	later ones          no call; they are counted here
//	every 30 min ±10 %  patch: count and last time (and the server keeps the object for another hour)
//	6 min of silence    patch: the final count, state Finished; exactly 6 min after the last occurrence
//
// A write carries the count as it is at that moment, so the second line of a hot loop says more than 2. The state is an annotation, because the v1
// API has no field for it.
//
// The name of a series' object is made of the name of what it is about and a hash of the key and an epoch, so that a restarted process, which may not
// list events, finds what it wrote: the create meets AlreadyExists, an empty patch returns the object, and if it was written by the same
// reporter about the same object, and its last occurrence is less than six minutes before ours, the series goes on from its count. Otherwise the
// next epoch has its turn. The object of epoch 0 points to later ones (AnnotationLatest), and the pointer is refreshed every 25 minutes while
// there is something to write, so the walk is short whatever has expired. Where the role allows a list, Options.List does all this at once.
//
// # What holds back
//
// A new series takes a token from a bucket per object and reason, and an object may have so many series and no more. Writes wait in one bounded queue, in
// the order of emission. A gate over all of them closes when the server answers 429, 5xx or 401, or cannot be reached: for the larger of
// Retry-After and an exponential delay with jitter, at most five minutes. Nothing is lost meanwhile but what does not fit into the table, and occurrences of
// series that are in it always fit. What the server refuses (400, 403, 413, 422, a namespace that is going away) is dropped, counted by its reason, and
// not tried again for six minutes, however often it occurs.
//
// A server that does not serve events.k8s.io/v1 gets core/v1 Events through the correlator of client-go's tools/record, and is asked again every five
// minutes. One that cannot be reached is not taken for that: its events wait.
//
// # Concurrency
//
// Recorders may be used from any goroutine. They never block on anything but a short lock, start nothing, format nothing for a series
// that is active, and allocate nothing then. The goroutine that runs the broadcaster makes all calls, one at a time (Options.Writers), and holds no lock while it does.
// What is about one object reaches the server in the order of emission; with one writer everything does.
//
// # Errors
//
// Recorders return nothing: what they cannot take is logged and counted. New names every option that makes no sense. Run and the Start methods return
// [ErrRunning], [ErrShutdown] and [ErrNoSink]; ShutdownWithContext returns an [*UnsentError] that says what was left. [Broadcaster.Stats] always adds up: what was
// emitted is what was acknowledged, dropped by a reason, or is still unsent.
package events
