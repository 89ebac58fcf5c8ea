// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"sync"
	"sync/atomic"
)

// OwnCall is a call of the agent's own to make, start, stop or remove a sandbox or a container, or
// to change its limits.
type OwnCall struct {
	// Pod is the pod of the call, with its name if known. The UID may be empty if ID is that of an
	// item in the cache; else the end of the call costs a list of everything, if it names no items.
	Pod PodRef
	// ID is the sandbox or container named by the call; empty for a creation.
	ID string
}

// Calling announces a coming call of the agent, and returns the function to call at its end,
// once. Without an error, the items are in the given phases now; an item needs its ID, Kind and
// Phase, and may have its Name. With an error, or without items, the call may have changed
// something. Give no items with an error: they would be believed. A call that changes a limit
// (UpdateContainerResources) has no items.
//
// The end of a call causes a read of the pod, a moment later (Config.CallSettle) and once for a
// few calls. Watch and cache show the result of the read. The reported phases mark a change as
// the agent's own (CauseAck), with no event missed.
//
// A call whose end is never told counts as under way for ever: with Config.TellsCalls, what others
// make or start in its pod may be told five times RelistBase later, and after a creation the pod is
// listed for each read. A second call of the returned function has no effect.
//
// Neither function blocks. Both are safe for concurrent use; calls about the same ID are reported
// in the order in which they are made. They have no effect when Run is over. A generator knows
// only the calls announced to itself: an agent with a call under way announces the call again to
// a new generator, or makes the generator after the end of the call.
func (g *Generator[S]) Calling(call OwnCall) (returned func(err error, now ...Item)) {
	c := g.acks.begin(call, g.clock)
	var ended atomic.Bool
	return func(err error, now ...Item) {
		if !ended.Swap(true) {
			g.acks.put(ack{
				call:     c,
				returned: true,
				failed:   err != nil,
				items:    now,
			}, g.clock)
		}
	}
}

// ownCall is a call of the agent's own.
type ownCall struct {
	OwnCall
	serial uint64
	began  instant // 0 if there was no room for the call
}

// ack is the agent's report of a call: its begin, or its end.
type ack struct {
	call     ownCall
	at       instant
	returned bool
	failed   bool
	items    []Item
}

// ackBox takes the agent's acks and hands them to the generator's loop, in order. Putting never
// blocks. What finds no room is lost: see core.loseAck.
type ackBox struct {
	wake     chan struct{} // capacity 1: one announcement stands for all waiting acks
	max      int           // bound on the acks when a call begins; calls under way may end, too
	maxCalls int           // bound on the calls under way, whose end nobody may report

	mu sync.Mutex // owns the fields below

	// acks wait for the loop, in the order of their stamps.
	acks []ack

	// serial is the serial of the last call that began.
	serial uint64

	// calls is the number of calls under way whose begin found room, at most maxCalls; without is
	// the number of the others.
	calls, without int

	// lost reports whether an ack that found no room came since the last take.
	lost bool

	// closed reports whether Run is over: acks are dropped.
	closed bool
}

func newAckBox(max, maxCalls int) *ackBox {
	return &ackBox{wake: make(chan struct{}, 1), max: max, maxCalls: maxCalls}
}

// begin takes a call about to be made.
func (b *ackBox) begin(call OwnCall, clk clock) ownCall {
	c := ownCall{OwnCall: call}
	b.mu.Lock()
	b.serial++
	if len(b.acks) < b.max && b.calls < b.maxCalls {
		c.began = clk.now()
		b.calls++
	} else {
		b.without++
	}
	c.serial = b.serial
	b.mu.Unlock()
	b.put(ack{call: c}, clk)
	return c
}

// put stamps an ack and keeps it for the loop if there is room.
func (b *ackBox) put(a ack, clk clock) {
	b.mu.Lock()
	a.at = clk.now() // under the mutex: stamps are in order
	followed := a.call.began != 0
	if a.returned && followed {
		b.calls--
	} else if a.returned {
		b.without--
	}
	switch {
	case b.closed:
	case followed || a.returned && len(b.acks) < b.max:
		b.acks = append(b.acks, a)
	default:
		b.lost = true // the call's changes are now for a list to find
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// lostCalls are the calls without room.
type lostCalls struct {
	some bool // a call began or ended, unreported
	open bool // a call is under way
}

// take moves the acks from before a time into buf, which is reused.
func (b *ackBox) take(buf []ack, by instant) (acks []ack, lost lostCalls) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(buf)
	n := len(b.acks)
	for n > 0 && b.acks[n-1].at > by { // rarely any; the loop is woken for them again
		n--
	}
	acks = append(buf[:0], b.acks[:n]...)
	b.acks = slices.Delete(b.acks, 0, n)
	lost = lostCalls{some: b.lost, open: b.without > 0}
	b.lost = false
	return acks, lost
}

// close drops all acks, present and future.
func (b *ackBox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acks = nil
	b.closed = true
}
