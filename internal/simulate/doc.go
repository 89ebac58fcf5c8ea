// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate hunts for a history in which the generator is wrong.
//
// # Model
//
// A history is a list of lines, each a command (see command.go): changes of the runtime, the fate
// of their events, faults of reads, waiters, and the passage of time. [Generate] makes a history
// from a seed; files under testdata are written by hand. Both run the same way ([Run]), in a
// testing/synctest bubble, so hours pass in milliseconds.
//
// There are two tiers. In the first the generator reads a toy runtime through its own [pleg.Source]
// and [pleg.Stream]: thousands of histories a second, torn reads, any order of delivery. In the
// second the generator reads the fake runtime over gRPC through the real client.
//
// The oracle knows the runtime's authoritative history, the calls and events at the boundary
// between generator and runtime, and the public interface of generator and cache, and nothing else.
// From these the oracle keeps a model of the reasons for reads (pace.go, podpace.go), of how long a
// waiter may wait for a read (fair.go) and of how soon a change must be told (prompt.go). The
// oracle looks after every event and call, also from within the generator's loop through the
// generator's Metrics, and checks the twelve invariants of the design: the list below names the
// place of each check.
//
// [Shrink] reduces a failure to a short script, which can be stored under testdata.
//
// # Concurrency
//
// Everything of a run lives in a bubble. A history fixes every delay and every fault; the order of
// two goroutines within an instant of virtual time is not fixed. Which claims of an instant the
// generator takes together is the scheduler's choice as well, and decides the order of some events.
// So scripts of the first tier have them come one by one, unless "config together true" is what
// they are about.
//
// # Errors
//
// A [Violation] names the broken invariant, the time, and the finding. Senseless commands are
// errors in strict mode and ignored otherwise, so that a shortened history still runs.
package simulate

// The check of each invariant of the design, and its kinds of violation:
//
//  1. A phase never goes back without being counted, and per ID the events are Started, Died,
//     Removed, each once at most: oracle.compare and oracle.event (regression, repeated, event),
//     resurrected IDs in Truth.Check.
//  2. The cache shows a change before Watch delivers its event: oracle.emitting keeps the content
//     of the cache at the moment of emission, oracle.event compares (order).
//  3. A read begun after t has confirmed the status from GetNewerThan(t), which is never nil:
//     waiter.returned and oracle.lookAt (stale, stale-read, resurrected-read, invented-read, nil,
//     error), and the pod workers (double-start), also when calls, events and waiters come between
//     the steps of a turn of the loop (within.go).
//     RequestReinspect is answered by a read of all statuses (unanswered): world.reinspected.
//  4. The global time moves only to the start of a finished list whose changed pods were inspected:
//     oracle.look, oracle.lookFresh and, through AsOf, oracle.lookAt (global, freshness, stale).
//  5. Every change reaches Watch as its event or a PodSync: oracle.consumer (lost-event). And soon:
//     a claim of a true change is shown and told within the bound of settings.soon:
//     oracle.lookPrompt and lookTold (late). So is what a call of the agent's own has changed
//     beside the phases: oracle.lookRewrites (late-content). Beside slow reads the bound is a
//     number of reads that have shown it: boundary.answered (overtaken). Reads of a pod
//     that fail in a row are told of: oracle.lookFailures (untold).
//  6. A base period after the first list begun at rest the cache equals the runtime: oracle.settled
//     (diverged, idle); waiters are served (slow-waiter, stuck-waiter); the stream comes back
//     (deaf).
//  7. Relists and the stream end in the same cache: TestDefect17InstancesDoNotKnowOfEachOther of
//     package pleg, and 6 for every history, with a stream or without.
//  8. Memory is proportional to the living IDs, and after Run no goroutine is left: world.empty
//     (memory), boundary.atRest (leak), and the bubble, which does not end while a goroutine is
//     left.
//  9. The runtime is not blocked and gets no needless calls: boundary.enter (storm),
//     crossing.Events (blocking), a watchdog outside of the bubble, and a model of the reasons for
//     reads: every list of everything needs a reason from pace, and every read of a pod a reason
//     from podPace (greedy, trust). Nor does a waiter wait for a read that could begin:
//     boundary.lookNeglected (late).
//  10. Steps of the wall clock change nothing: clock commands in every search, under all the other
//      checks, and TestClockStepsChangeNothing, which runs histories with and without them and
//      compares every event, every read and its time, the cache and the statistics.
//  11. Every pod in need of a read gets a read in turn, and hanging reads hold half of the workers:
//      boundary.mustWait, which lookNeglected asks while every worker is busy (unfair). No runtime
//      is accused that answers, also if the generator has stood still: boundary.Record (accused). A
//      generator that stands is not healthy: oracle.lookStanding (standing).
//  12. A running ID that vanishes without a report is looked for twice before Removed is told:
//      looks miss living IDs (Truth.Hide), and the cache may not take one for gone
//      (oracle.lookAt).
//
// The generator's core checks the invariants of its own records after each turn (invariant): see
// hook.InvariantBroken.
//
// While reads lie (the second tier's nil-fields, unknown-enum, duplicate-id, orphan-container)
// Truth.Compare notes the IDs of the lies, at the boundary, and the checks of single IDs go on for
// all other IDs. The bounds of the number of reads stay, by the results of the reads. When the lies
// have ended and the cache and a reader of Watch agree with the runtime again, every check applies
// again to every ID (oracle.believe).
