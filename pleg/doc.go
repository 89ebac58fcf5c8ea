// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package pleg is an evented PLEG (pod lifecycle event generator): it tells a node agent what
// happened to its containers, and keeps the cache of pod statuses that the agent's pod workers wait
// on, without polling the runtime for it.
//
// # Model
//
// What is known of a pod is a set of IDs, each with a [Phase]. Runtimes never reuse an ID and a
// life only moves forward, so two reports of one ID are merged by taking the later phase; nobody
// asks which report is newer. Stale, duplicated, reordered and replayed reports cannot hurt.
//
// There are three kinds of reports. A read (a list of the whole runtime, or of one pod, with or
// without its statuses) is complete for what it covers and true at some moment after it began:
// reads are the truth, and the only source of freshness. A claim (an event of the runtime's stream)
// is partial and perhaps old: it advances phases, and never makes anything fresh. An ID that only
// claims have told of is confirmed by a read before anybody hears of it. A read that begins more
// than Config.Grace after a claim overrules it. What the agent tells of its own calls
// ([Generator.Calling]) is certain for what the call was about, says nothing of anything else, and
// makes nothing fresh either.
//
// The status of a pod (the type parameter S, which this package never looks into) comes from a
// read, or from a claim's payload that dominates what is known: every live ID of the pod is in it,
// none at an earlier phase. Such a payload is stored under the time of the read that it builds on.
//
// The stream earns trust. While it is up, the relist period doubles, from RelistBase to RelistMax,
// with every relist that found nothing which the stream had not told. A change that only a read
// told of is a missed event: it is counted, and the period falls back to the base. So it does when
// the stream is lost, which is then opened again for ever: see [StreamState]. A stream that has
// told nothing between two missed events hangs: it is ended and opened anew.
//
// A pod worker that waits in the cache's GetNewerThan wants a read of its pod, and gets it at once,
// or together with many others from one list of everything (Config.SweepAt). An agent that tells of
// all its calls may have its workers answered without one (Config.AnswersFromMemory), when nothing
// is left that a read could tell and the stream could not.
//
// [Generator.Watch] tells of a change after the cache shows it. An event that finds the channel
// full turns into a PodSync that the pod is owed.
//
// # Terms
//
//   - ID: a container or a sandbox, by the name that the runtime gives it. It belongs to one pod.
//   - phase: how far the life of an ID has come, from [PhaseCreated] to [PhaseRemoved].
//   - read: a list of everything, the list of one pod, or an inspection of it with its statuses. It
//     is as of its beginning.
//   - claim: what one event of the stream says of its own ID; its payload is what it says beside.
//   - grace: how long a claim and a read may contradict each other before the read is believed.
//   - overrule: a read takes back what a claim, or an earlier read, has shown.
//   - dominate: a payload shows every live ID of the pod, none at an earlier phase than is known.
//   - settled: the cache shows a pod as it is known. A pod that is not, or of which something else
//     is in doubt, is unsure, and one that is unsure, or wanted, is open: it will be read.
//   - as of: the beginning of the read that a status in the cache stands for; the global time is
//     that of a list of everything whose changed pods have all been inspected since.
//   - tombstone: that a read showed nothing of a pod, and which; it keeps older reads out of the
//     cache.
//   - suspect: a claimed ID that no read has shown yet.
//   - missed, unheard: a change that a read found and no claim told, while the stream was up all
//     the time, and while it was not.
//   - trust: the relist period that the stream has earned.
//   - sweep: one list of everything in place of many reads of single pods.
//   - owed: a pod whose events found Watch full has a PodSync coming.
//
// # Embedding
//
// Implement [Source], and [Stream] if the runtime has events (package cri does both for any CRI
// runtime), make a cache, and run:
//
//	statuses := cache.New(cri.EmptyStatus)
//	generator, err := pleg.New(pleg.Config[cri.PodStatus]{
//		Source: client, Stream: client, Cache: statuses, Merge: cri.KeepIPs,
//	})
//	...
//	go generator.Run(ctx)
//	for event := range generator.Watch() {
//		status, err := statuses.Get(event.Pod)
//		...
//	}
//
// # Concurrency
//
// One goroutine, the one in [Generator.Run], owns all state; it is the only writer of the cache and
// of Watch, and never blocks on the runtime. Reads run in children that touch nothing shared: one
// for the stream, one for the list of everything, Config.InspectWorkers for single pods. The
// stream's child does nothing but merge claims into a mailbox that is bounded by the IDs it holds,
// so that the runtime is never kept waiting. Run returns when all of them have ended. Every other
// method may be called from anywhere at any time. Two generators know nothing of each other, but
// each wants a cache of its own.
//
// # Errors
//
// [New] names every field that cannot work. A list that fails is retried after the base period;
// [Generator.Health] tells when that has gone on for too long, and why. A pod whose status cannot
// be read keeps its last one in the cache, beside the error, and is tried again with growing delay.
// The end of the stream is not an error but a state.
package pleg
