// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps what a kubelet's CRI client has learned of the sandboxes and containers of
// its node, as the list items of the CRI, so that lists can be answered from memory.
//
// # Model
//
// A life moves forward: Created, Running, Exited, removed; a sandbox is Ready (as Running),
// NotReady (as Exited), removed. Three kinds of evidence move an item:
//
//   - a read, a list or a status, is the truth as of its beginning. What it shows may lie at any
//     moment between its beginning and its end. So it moves an item forward always; back only if it
//     began after the ledger learned the phase, and away only if after it learned of the item.
//   - an own call that has been answered without error is a fact ("ack"): the agent started,
//     stopped or removed the item itself. One that makes something, and that the runtime has not
//     answered, may do so for some minutes yet.
//   - a claim, an event of the runtime's stream, moves nothing. If it tells of more than is known,
//     its ID is in doubt, until a read that began later answers, or what is known has caught up.
//
// A list is served if nothing that it could show is in doubt. Too much may be shown, for a bounded
// time; never too little. So an end needs a read or an ack, and these refuse a list, which must
// then go to the runtime ([Reason]): no stream whose full lists are in; a full list too long ago; a
// creating call under way, or failed since the last full list, or not answered within the last
// minutes, if the list may show that pod; an item of unknown state; an ID that
// the ledger does not have.
//
// Moments are numbers ([Seq]) that the ledger gives out itself, so that two of them are never
// equal.
//
// # Concurrency
//
// A Ledger has no lock and starts nothing: its owner calls it under one mutex. The elements that it
// returns are shared and must not be changed; the slices are the caller's own.
//
// # Errors
//
// There are none. What cannot be served has a [Reason]. A flood of claims of unknown IDs is
// bounded: beyond 4096 of a kind nothing is served until the next full lists.
package ledger
