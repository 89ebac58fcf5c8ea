// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package node is the runtime of test/peer: a CRI server that answers with messages encoded
// beforehand, so that it costs next to nothing beside the clients that are compared.
//
// # Model
//
// A [Node] is a number of pods, each ready, with a number of running containers. It answers the
// calls that PLEGs make: both ways of listing with their filters, both statuses, the event stream.
// Lists are encoded twice with the items, and the entries of maps, in another order, and served by
// turns, because that is what real runtimes do. Containers exit when told, and events are sent when
// told ([Node.Flood]); a status call takes as long as told.
//
// # Concurrency
//
// A Node is safe for concurrent use.
package node
