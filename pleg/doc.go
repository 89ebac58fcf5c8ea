// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package pleg is an evented PLEG (pod lifecycle event generator): it reports container changes to
// a node agent, and keeps the cache of pod statuses on which the agent's pod workers wait, without
// polling the runtime.
//
// # Model
//
// The record of a pod is a set of IDs, each with a [Phase]. Runtimes never reuse an ID and a life
// only moves forward, so two reports of one ID are merged by taking the later phase; the order of
// the reports does not matter. Stale, duplicated, reordered and replayed reports cannot hurt.
//
// There are three kinds of reports. A read (a list of the whole runtime, or of one pod, with or
// without its statuses) is complete for its scope and true at some moment after it began: reads are
// the truth, and the only source of freshness. A claim (an event of the runtime's stream) is
// partial and perhaps old: it advances phases, and never makes anything fresh. An ID known from
// claims only is confirmed by a read before Watch or the cache shows it. A read that begins more
// than Config.Grace after a claim overrules it. An ack, the agent's report of a call of its own
// ([Generator.Calling]), is certain for the subject of the call, says nothing of anything else, and
// makes nothing fresh either.
//
// The status of a pod (the type parameter S, opaque to this package) comes from a read, or from a
// claim's payload that dominates: every live ID of the pod is in the payload, none at an earlier
// phase than known. Such a payload is stored under the time of the read that it builds on.
//
// The stream earns trust. While the stream is up, the relist period doubles, from RelistBase to
// RelistMax, with every relist that found no unannounced change. A change that only a read found is
// a missed event: it is counted, and the period falls back to the base. The same happens when the
// stream is lost, which is then opened again for ever: see [StreamState]. A stream without a claim
// between two missed events hangs: it is ended and opened anew.
//
// A pod worker that waits in the cache's GetNewerThan demands a read of its pod, and gets the read
// at once, or together with many others from one list of everything (Config.SweepAt).
//
// [Generator.Watch] delivers a change after the cache shows it. An event that finds the channel
// full turns into a PodSync owed to the pod.
//
// # Terms
//
//   - ID: a container or a sandbox, by the runtime's name for it. An ID belongs to one pod.
//   - phase: the progress of the life of an ID, from [PhaseCreated] to [PhaseRemoved].
//   - read: a list of everything, the list of one pod, or an inspection of a pod with its statuses.
//     A read is as of its begin.
//   - claim: an event of the stream, about its own ID; the statuses that come with the event are
//     its payload.
//   - ack: the outcome of a call of the agent's own.
//   - grace: how long a claim and a read may contradict each other before the read is believed.
//   - overrule: a read takes back a phase from a claim. A phase taken back from an earlier read is
//     a regression.
//   - dominate: a payload shows every live ID of the pod, none at an earlier phase than is known.
//   - unconfirmed: a claimed ID that no read has shown yet. Without a pod in the claim the ID is
//     unowned, too.
//   - owner conflict: reads show an ID in two pods. The later read reassigns the ID; a status that
//     still shows it in the other pod has a foreign ID.
//   - statusUnknown: the pod's status does not know the state of an ID (CRI CONTAINER_UNKNOWN).
//   - settled: the cache shows a pod as it is believed to be.
//   - unsure: a pod that is not settled, or otherwise in doubt. An unsure or wanted pod is dirty:
//     it will be read.
//   - teardown: a pod has a sandbox that is not ready, and is read until the sandbox has gone.
//   - changed since list: a pod may differ from the last list, so that the silence of a list of
//     differences is news.
//   - as of: the begin of the read behind a status in the cache; the global time is the begin of a
//     list of everything whose changed pods have all been inspected since.
//   - round: the pods that a list found changed, until all are inspected and the global time moves.
//   - tombstone: the begin of a read that showed nothing of a pod; it keeps older reads out of the
//     cache.
//   - unexpired: a removed ID, or its pod, that an old report could still bring back.
//   - uncertain create: a create call that failed and may still take effect.
//   - candidate: a change found by a read, whose claim may still come. Without one it was missed,
//     if the stream was up all the while, and otherwise unheard.
//   - trust: the relist period that the stream has earned. A list without an unannounced change is
//     a credit.
//   - mute: a stream that hangs open and carries nothing.
//   - demand: a waiter in GetNewerThan, which wants a read begun after its time.
//   - ladder: a delay that doubles with each step, before a pod is read again.
//   - sweep: one list of everything in place of many reads of single pods.
//   - mailbox, outbox: claims that wait for the loop, and events that wait for Watch's reader.
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
// One goroutine, inside [Generator.Run], owns all state, is the only writer of the cache and of
// Watch, and never blocks on the runtime. Reads run in children without shared state: one for the
// stream, one for the list of everything, Config.InspectWorkers for single pods. The stream's child
// only merges claims into a mailbox, bounded by the number of IDs in it, so that the runtime never
// waits. Run returns when all children have ended. Every other method may be called from anywhere
// at any time. Two generators in a process are independent, but each needs a cache of its own.
//
// # Errors
//
// [New] names every field that cannot work. A list that fails is retried after the base period;
// [Generator.Health] reports when failures have lasted too long, and why. A pod whose status cannot
// be read keeps its last status in the cache, beside the error, and is tried again with growing
// delay. The end of the stream is not an error but a state.
package pleg
