// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package evidence holds what is known of one pod, and the functions that change it.
//
// # Model
//
// Four nouns, each derived from the one before:
//
//   - Evidence of an ID: the phase that reads and the agent's own calls bear out, the further phase
//     that the stream claims, and when either became known.
//   - Belief: the phase that is thought to be true, which is the later of the two for an ID that a
//     read has shown.
//   - Doubt: the reason why the cache may be wrong about the pod.
//   - Need: doubt, or somebody who waits, causes a read of the pod. Nothing else does.
//
// Reports of a pod are reads, claims and acks. A read shows everything that the runtime has of the
// pod, each ID as it was at some moment between the read's begin and its end; two IDs need not be
// shown as of the same moment. A claim is an event of the runtime's stream: late, early, twice, or
// false. An ack is the return of a call that the agent itself made.
//
// # Rules
//
//  1. A claim of no later phase than Seen or Claim is ignored; a repeat does not restart its grace.
//  2. A read or claim that shows more advances. A read that shows less overrules Seen only if it
//     began after To, and a claim only if it began a grace after At.
//  3. An absence counts only if the read began after To. A claim never makes a void absence count.
//  4. UNKNOWN neither confirms nor overrules. An inspection's UNKNOWN is stored as it is shown, and
//     leaves doubt.
//  5. A claim is dropped when a read or an ack shows at least as much, or a read overrules it.
//  6. A claim of an ID that no read has shown makes nothing known. Its removal is dropped only when
//     a grace has passed for every read under way and to come.
//  7. A successful ack sets Seen, never backward. A call that failed sets Moved: it may have
//     worked.
//  8. An inspection is stored as of its begin, unless it is older than AsOf or takes back what the
//     cache showed, or an ack ended, without overruling it. A refused inspection sets Moved.
//  9. A list refreshes only if it shows literally what the cache shows, with no UNKNOWN, error or
//     foreign status. A list that differs sets Moved, unless the evidence has taken up all that it
//     shows: then that is doubt enough, and an inspection may begin with the list's listing.
//  10. A list that ends while the pod is being inspected sets Moved.
//  11. Only a read begun after Moved clears it: an inspection, or a list that refreshes.
//  12. A payload is stored, AsOf unchanged, only if it equals belief for every ID, there is no
//     unconfirmed ID, failure, Moved or foreign status, and it adds no ID to the cached status.
//  13. Watch gets the difference of successive cached statuses, each event of an ID at most once.
//  14. A pod is in doubt if it is foreign, failed or moved, UNKNOWN is cached, a claim is
//     unconfirmed, or belief differs from what is cached.
//  15. A list is served to the agent from Seen, and only of pods without doubt.
//  16. A removed ID is forgotten once no read under way began by To.
//  17. Who waits may be answered without a read, AsOf becoming now, of a pod without doubt that is
//     not being inspected.
//
// The tests search all states that these functions can reach under an adversarial runtime, until no
// new state appears: see prove_test.go, and make prove.
//
// # Concurrency
//
// A [Pod] belongs to its caller. The functions are pure but for the Pod that they are given: no
// clock, no randomness, nothing shared.
package evidence
