// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package pleg is an evented PLEG (pod lifecycle event generator): it reports container changes to
// a node agent, and keeps the cache of pod statuses on which the agent's pod workers wait, without
// polling the runtime.
//
// # Model
//
// Runtimes never reuse the ID of a container or sandbox, and the life of an ID only moves forward:
// see [Phase]. What the generator knows of a pod is what the pod's last stored status showed: a set
// of IDs, each in a phase. One function stores a status. It writes the cache, moves the record and
// sends Watch the difference, all at once.
//
// Reads decide. A read is a list of the whole runtime, a list of one pod, or an inspection of a pod
// with its statuses. A read is complete for its scope and true at some moment after it began. Only
// reads make a status fresh. Everything else says which pods to read, and when:
//
//   - A claim (an event of the runtime's stream) is partial and perhaps old. A claim of a later
//     phase than the record shows is an expectation of its pod, and the pod is read until a read
//     meets the expectation. A read that began more than Config.Grace after the claim, and shows
//     less, refutes the claim.
//   - An ack (the end of a call of the agent's own, see [Generator.Calling]) is an expectation,
//     too. The next read meets it.
//   - A list of everything is compared with the records. A pod that the list shows unchanged
//     becomes fresh; a pod that the list shows otherwise is read.
//   - A waiter in the cache's GetNewerThan wants a read of its pod that begins after a time. Many
//     waiters are served by one list of everything (Config.SweepAt).
//
// There is one shortcut: a payload (the statuses that come with a claim) that dominates is stored
// without a read, so that an exit reaches Watch at once. The payload shows every ID that the status
// in the cache shows and no other, none in an earlier phase, and everything that is expected of the
// pod. The payload makes nothing fresh. A later read decides; a read that began within the grace of
// the claim and shows less is made again first.
//
// A runtime may not know the state of an ID ([PhaseUnknown]). The cache shows as much. Such a read
// neither meets nor refutes a claim.
//
// The stream earns trust. While the stream is up, the relist period doubles, from RelistBase to
// RelistMax, with every relist that found no unannounced change. A change that only a read found is
// a missed event: the event is counted, and the period falls back to the base. A refuted claim and
// the loss of the stream have the same effect. A lost stream is opened again for ever: see
// [StreamState]. A stream without a claim between two missed events is mute, and is opened anew.
// Changes that nobody could hear, because no stream was up, count as unheard and cost no trust.
//
// [Generator.Watch] delivers a change after the cache shows it. An event that finds the channel
// full turns into a PodSync owed to the pod.
//
// # Terms
//
//   - ID: a container or a sandbox, by the runtime's name for it; an item is its record.
//   - phase: the progress of the life of an ID, from [PhaseCreated] to [PhaseRemoved].
//   - read: a list of everything, a list of one pod, or an inspection. A read is as of its begin.
//   - claim: an event of the stream about one ID; payload: the statuses that come with the event.
//   - ack: the end of a call of the agent's own.
//   - expectation: a phase that a claim or an ack has reported and no read has confirmed.
//   - grace: how long a claim and a read may contradict each other before the read is believed.
//   - dominate: a payload shows no less than the status in the cache and all expectations.
//   - as of: the begin of the read behind a cache entry. The global time is the begin of the last
//     list of everything whose changed pods have all been read.
//   - dirty: a pod that is to be read. Teardown makes a pod dirty, too: its sandbox is not ready,
//     and some runtimes never announce the removal.
//   - ladder: a delay that doubles with each step, before a pod is read again without a demand.
//   - sweep: one list of everything in place of many reads of single pods.
//   - trust: the relist period that the stream has earned. A quiet list is a credit.
//   - missed, unheard: a change that only a read found, while the stream was up, or was not.
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
// stream, one for the list of everything, and one for each read of a single pod (see
// Config.InspectWorkers). The stream's child
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
