// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package pleg is an evented PLEG (pod lifecycle event generator): it reports container changes
// to a node agent, and keeps the cache of pod statuses on which the agent's pod workers wait,
// without polling the runtime.
//
// # Model
//
// Runtimes never reuse the ID of a container or sandbox, and the life of an ID only moves
// forward: see [Phase]. The generator's knowledge of a pod is the last stored status: a set of
// IDs, each in a phase. A single function, book.enter, writes the cache, moves the record and
// sends Watch the difference, all at once.
//
// Reads decide. A read is a list of the whole runtime, a list of one pod, or an inspection of a
// pod with its statuses. A read is complete for its scope and true at some moment after it began.
// Only reads make a status fresh. Everything else says which pods to read, and when:
//
//   - A claim (an event of the runtime's stream) is partial and perhaps old. A claim of a later
//     phase than the record shows is an expectation of its pod, and the pod is read until a read
//     meets the expectation. A read begun more than Config.Grace after the claim, and showing less,
//     refutes the claim.
//   - An ack (the end of a call of the agent's own, see [Generator.Calling]) is an expectation,
//     too, met by the next read.
//   - A list of everything is compared with the records. A pod listed unchanged becomes fresh; a
//     pod listed otherwise is read.
//   - A waiter in the cache's GetNewerThan wants a read of all statuses of its pod, begun after a
//     time; in GetPhasesNewerThan, of the phases. Many waiters are served by one list of everything
//     (Config.SweepAt), which shows the phases of all, and stands in for the list of each pod.
//
// There is a shortcut: a payload (the statuses sent with a claim) that dominates is stored
// without a read, so an exit reaches Watch at once. The payload shows exactly the IDs of the
// status in the cache, none in an earlier phase, and everything expected of the pod. The payload
// makes nothing fresh. A later read decides; a read begun within the grace of the claim and
// showing less is made again first.
//
// A status is more than its phases: a limit changes without an event, the reason of an end comes
// late. A read of all statuses is therefore made again a moment after an end (Config.EndSettle),
// after a reconnect, and in a slow round over all pods (Config.Reread); and after a call of the
// agent's own that tells of no phase, or fails. No list answers for one of these, and a read that
// is thrown away is none. A status that differs from the one before with no phase changed costs
// Watch a PodSync, and is counted (Config.Same).
//
// A runtime may be slow, and reads may hang. A limiter tells them apart by what ends: see
// Config.InspectWorkers.
//
// A runtime may not know the state of an ID ([PhaseUnknown]). The cache shows as much. Such a
// read neither meets nor refutes a claim.
//
// A read may yield a part of a pod. The part is stored beside the error; IDs that could not be
// read stand at the phase a list has shown. A running ID that vanishes without a claim or an
// ack of its end is looked for once more before it is called removed, and a list that lost more
// running pods than it kept is made again.
//
// The stream earns trust. While the stream is up, the relist period doubles, from RelistBase to
// RelistMax, with every relist without an unannounced change. A change found only by a read is a
// missed event: the event is counted, and the period falls back to the base. A refuted claim, a
// phase taken back, a state lost or found and the loss of the stream have the same effect. A
// runtime that announces no creations, or no removals, is not blamed for them. A lost stream is
// opened again for ever: see [StreamState]. A stream without a claim between two missed events is
// mute, and is opened anew. Changes while no stream was up count as unheard and cost no trust.
//
// [Generator.Watch] delivers a change after the cache shows it. An event without room in the
// channel turns into a PodSync owed to the pod.
//
// # Terms
//
//   - ID: a container or a sandbox, by its name in the runtime; an item is its record.
//   - phase: the progress of the life of an ID, from [PhaseCreated] to [PhaseRemoved].
//   - read: a list of everything, a list of one pod, or an inspection. A read is as of its begin.
//   - claim: an event of the stream about an ID; payload: the statuses in the event.
//   - ack: the end of a call of the agent's own.
//   - expectation: a phase reported by a claim or an ack, and confirmed by no read.
//   - grace: how long a claim and a read may contradict each other before the read is believed.
//   - dominate: a payload shows no less than the status in the cache and all expectations.
//   - as of: the begin of the read behind a cache entry. The global time is the begin of the last
//     list of everything whose changed pods have all been read.
//   - dirty: a pod to be read. Teardown makes a pod dirty, too: its sandbox is not ready, and some
//     runtimes never announce the removal.
//   - ladder: a delay, doubling with each step, before a pod is read again without a demand.
//   - peek: a look at the known IDs of a pod, one by one, while lists, or reads, do not answer.
//   - sweep: a list of everything in place of many reads of single pods.
//   - trust: the relist period earned by the stream. A quiet list is a credit.
//   - missed, unheard: a change found only by a read, while the stream was up, or was not.
//   - mailbox, outbox: claims waiting for the loop, and events waiting for Watch's reader.
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
// A single goroutine, inside [Generator.Run], owns all state, is the only writer of the cache and
// of Watch, and never blocks on the runtime. Reads run in children without shared state: a child
// for the stream, a child for the list of everything, and a child for each read of a single pod
// (see Config.InspectWorkers). The stream's child only merges claims into a mailbox, bounded by
// the number of its IDs: the runtime never waits. Run returns when all children have ended. Every
// other method may be called from anywhere at any time. Two generators in a process are
// independent, but each needs a cache of its own.
//
// # Errors
//
// [New] names every unworkable field. A failed list is retried after the base period;
// [Generator.Health] reports when failures have lasted too long, and why. A pod whose status
// cannot be read keeps its last status in the cache, beside the error, and is tried again each
// second, with growing delay if the read hangs, and after each list of everything. The end of the
// stream is not an error but a state.
package pleg
