// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// inputKind is what an input tells the core.
type inputKind uint8

const (
	inputStart     inputKind = iota // the beginning: what the cache holds
	inputTick                       // time has passed
	inputClaims                     // what the stream told
	inputAcks                       // what the agent told of its own calls
	inputListed                     // the result of a list of everything
	inputInspected                  // the result of the read of one pod
	inputEnded                      // the stream has ended
	inputDemand                     // the cache's waiters
	inputRequest                    // what an embedder asks for
	inputOverflow                   // Watch has begun to overflow
	inputRefused                    // the cache has not taken a write that it was to take
)

// input is one thing that the core is told, with what is said about it. Together with the time at
// which it is told this is all that a core depends on.
type input[S any] struct {
	kind      inputKind
	in        connInput               // inputEnded: what the end means
	held      []cache.UID             // inputStart
	claims    *batch[S]               // inputClaims; the core keeps nothing of it
	acks      []ack                   // inputAcks; the core keeps nothing of it but the calls under way
	lost      bool                    // inputAcks: some found no room
	listed    *listedAll              // inputListed
	inspected *inspected[S]           // inputInspected
	ended     error                   // inputEnded
	demand    map[cache.UID]time.Time // inputDemand
	request   request                 // inputRequest
	refused   refusal                 // inputRefused
}

// apply tells the core. Now never decreases.
func (c *core[S]) apply(in input[S], now instant) {
	switch in.kind {
	case inputStart:
		c.start(in.held, now)
	case inputTick:
		c.tick(now)
	case inputClaims:
		c.onClaims(in.claims, now)
	case inputAcks:
		c.takeAcks(in.acks, in.lost, now)
	case inputListed:
		c.onListed(in.listed, now)
	case inputInspected:
		c.onInspected(in.inspected, now)
	case inputEnded:
		c.ended = in.ended
		c.step(in.in, now)
	case inputDemand:
		c.onDemand(in.demand, now)
	case inputRequest:
		c.onRequest(in.request, now)
	case inputOverflow:
		c.onOverflow(now)
	case inputRefused:
		c.onRefused(in.refused.uid, in.refused.has, now)
	default:
		panic(fmt.Sprintf("pleg: no such input: %d", in.kind))
	}
}

// onOverflow is told that Watch has begun to overflow.
func (c *core[S]) onOverflow(now instant) {
	c.paced(Report{
		Reason: ReasonWatchOverflow, Action: "Coalesce", Warning: true,
		Note: "pod lifecycle events are not being read fast enough; pods are owed one PodSync each",
	}, now)
}
