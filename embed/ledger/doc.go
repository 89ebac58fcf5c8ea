// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps the sandboxes and containers of a node, as seen by a kubelet's CRI client,
// in the form of the CRI's list items, so that lists can be answered from memory.
//
// # Model
//
// A life moves forward: Created, Running, Exited, removed; a sandbox is Ready (as Running),
// NotReady (as Exited), removed. Three kinds of evidence move an item:
//
//   - a read, a list or a status, is the truth as of its beginning. Each shown state may be from
//     any moment between the read's beginning and end. So a read always moves an item forward; back
//     only if the read began after the ledger learned the phase, and away only if after the ledger
//     learned of the item.
//   - an own call that has been answered without error is a fact ("ack"): the agent started,
//     stopped or removed the item itself. A creating call without an answer may still create an
//     item for some minutes.
//   - a claim, an event of the runtime's stream, moves nothing. If the claim goes beyond the known
//     phase, its ID is in doubt, until a later read answers, or the known phase has caught up.
//
// A sandbox may be shown as not ready before it is ready, while it is made. Until the ledger has
// learned that it was ready, each claim goes beyond the known phase, and of two reads that overlap
// and differ neither counts.
//
// A list is served if no item that the list could show is in doubt. Too much may be shown, for a
// bounded time; never too little. So an end needs a read or an ack, and these refuse a list, which
// must then go to the runtime ([Reason]): no stream whose full lists are in; a full list too long
// ago; a creating call failed since the last full list, or not answered within the last minutes, if
// the list may show that pod; a sandbox shown as not ready that an own call under way may be
// making; an item of unknown state; an ID unknown to the ledger. What a call under way makes is
// left out, as in a list made before the call.
//
// Moments are numbers ([Seq]) given out by the ledger itself, so that no two are ever equal.
//
// # Concurrency
//
// A Ledger has no lock and starts nothing: its owner calls it under one mutex. The returned
// elements are shared and must not be changed; the slices are the caller's own.
//
// # Errors
//
// There are none. A refused list has a [Reason]. A flood of claims of unknown IDs is bounded:
// beyond 4096 of a kind nothing is served until the next full lists.
package ledger
