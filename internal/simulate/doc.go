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
// The oracle knows the runtime's authoritative history, what crossed the boundary between generator
// and runtime, and the public interface of generator and cache, and nothing else. From these it
// keeps a model of why anything may be read (pace.go, podpace.go), of how long a waiter may
// wait for a read (fair.go) and of how soon a change must be told (prompt.go). It looks whenever
// something happens, also from within the generator's loop through the Metrics that it is given,
// and checks the eleven invariants of the design: the list below says where each is checked.
//
// [Shrink] reduces a failure to a short script, which can be stored under testdata.
//
// # Concurrency
//
// Everything of a run lives in a bubble. A history fixes every delay and every fault; the order of
// two goroutines within an instant of virtual time is not fixed.
//
// # Errors
//
// A [Violation] names the broken invariant, the time, and the finding. Senseless commands are
// errors in strict mode and ignored otherwise, so that a shortened history still runs.
package simulate

// Where each invariant of the design is checked, and the kinds of violation that tell of it:
//
//  1. A phase never goes back unless that is counted, and per ID the events are Started, Died,
//     Removed, each once at most: oracle.compare and oracle.event (regression, repeated, event),
//     resurrected IDs in Truth.Check.
//  2. The cache shows a change before Watch tells of it: oracle.emitting keeps what the cache shows
//     at the moment of emission, oracle.event compares (order).
//  3. What GetNewerThan(t) returns was confirmed by a read begun after t, and nobody is handed nil:
//     waiter.returned and oracle.lookAt (stale, stale-read, resurrected-read, invented-read, nil,
//     error), and the pod workers (double-start), also when calls, events and waiters come between
//     the steps of a turn of the loop (within.go).
//     RequestReinspect is answered by a read of all statuses (unanswered): world.reinspected.
//  4. The global time moves only to the start of a finished list whose changed pods were inspected:
//     oracle.look, oracle.lookFresh and, through AsOf, oracle.lookAt (global, freshness, stale).
//  5. Every change reaches Watch as its event or a PodSync: oracle.consumer (lost-event). And soon:
//     a claim of a true change is shown and told within the bound of settings.soon:
//     oracle.lookPrompt and lookTold (late).
//  6. One base period after the first list that begins at rest the cache equals the runtime:
//     oracle.settled (diverged, idle); waiters are served (slow-waiter, stuck-waiter); the stream
//     comes back (deaf).
//  7. Relists and the stream end in the same cache: TestDefect17InstancesDoNotKnowOfEachOther of
//     package pleg, and 6 for every history, whether it listens or not.
//  8. Memory is that of what lives, and after Run nothing runs: world.empty (memory), ledger.atRest
//     (leak), and the bubble, which does not end while a goroutine is left.
//  9. The runtime is not blocked and not asked more than it must be: boundary (blocking, storm), a
//     watchdog outside of the bubble, and a model of why anything may be read: every list of
//     everything needs one of the reasons at pace, and every read of a pod one of the reasons at
//     podPace (greedy, trust). Nor does anybody wait for a read that could begin:
//     ledger.lookNeglected (late).
//  10. Steps of the wall clock change nothing: clock commands in every search, under all the other
//      checks, and TestClockStepsChangeNothing, which runs histories with and without them and
//      compares every event, every read and its time, the cache and the statistics.
//  11. Whoever needs a read gets one in turn, and reads that hang hold half of the workers:
//      ledger.mustWait, which lookNeglected asks while every worker is busy (unfair).
//
// What must hold within the generator's core, its own bookkeeping, it checks itself after each turn
// (invariant): see hook.InvariantBroken.
//
// While reads lie (the second tier's nil-fields, unknown-enum, duplicate-id, orphan-container)
// Truth.Compare notes of which IDs they have lied, at the boundary, and the checks of single IDs go
// on for all others; how often may be read is bounded as ever, by what reads show. When the lies
// have ended and the cache and a reader of Watch agree with the runtime again, every check applies
// again to every ID (oracle.believe).
