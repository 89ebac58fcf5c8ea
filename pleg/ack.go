// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// OwnCall is a call of the agent's own to make, start, stop or remove a sandbox or a container.
type OwnCall struct {
	// Pod is the pod of the call, with its name if known. The UID may be empty if ID is known.
	Pod PodRef
	// ID is the sandbox or container named by the call; empty for a creation.
	ID string
}

// Calling announces a coming call of the agent, and returns the function to call at its end, once.
// Without an error, the items are in the given phases now; an item needs its ID, Kind and Phase,
// and may have its Name. With an error, or without items, the call may have changed something.
//
// The end of a call causes a read of the pod, a moment later (Config.CallSettle) and once for a few
// calls. Watch and cache show the result of the read. The reported phases mark a change as the
// agent's own (CauseAck), with no event missed.
//
// Neither function blocks. Both are safe for concurrent use; calls about the same ID are reported
// in the order in which they are made. They have no effect when Run is over. A generator knows only
// the calls announced to itself: an agent with a call under way announces the call again to a new
// generator, or makes the generator after the end of the call.
func (g *Generator[S]) Calling(call OwnCall) (returned func(err error, now ...Item)) {
	c := g.acks.begin(call, g.clock)
	var ended atomic.Bool
	return func(err error, now ...Item) {
		if !ended.Swap(true) {
			g.acks.put(ack{call: c, returned: true, failed: err != nil, items: now}, g.clock)
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

	mu      sync.Mutex // owns the fields below
	acks    []ack
	serial  uint64 // of the last call
	calls   int    // under way, with room
	without int    // under way, without room
	lost    bool   // an ack without room came since the last take
	closed  bool
}

func newAckBox(max, maxCalls int) *ackBox {
	return &ackBox{wake: make(chan struct{}, 1), max: max, maxCalls: maxCalls}
}

// begin takes a call about to be made.
func (b *ackBox) begin(call OwnCall, clk clock) ownCall {
	c := ownCall{OwnCall: call}
	b.mu.Lock()
	if b.serial++; len(b.acks) < b.max && b.calls < b.maxCalls {
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
	lost, b.lost = lostCalls{b.lost, b.without > 0}, false
	return acks, lost
}

// close drops all acks, present and future.
func (b *ackBox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acks, b.closed = nil, true
}

// onAcks applies the agent's reports of its calls.
func (c *core[S]) onAcks(acks []ack, lost lostCalls, now instant) {
	if c.calling = lost.open; lost.some {
		c.loseAck(now)
	}
	for i := range acks {
		a := &acks[i]
		p := c.calls[a.call.serial]
		if p == nil {
			p = c.podOf(&a.call)
		}
		switch {
		case a.returned:
			c.onReturned(p, a, now)
		case p != nil:
			p.calls++
			if a.call.ID == "" {
				p.creating++
			}
			c.calls[a.call.serial] = p
		}
		if p != nil {
			c.review(p, now)
		}
	}
}

// podOf returns the pod of a call, or nil if nothing names the pod.
func (c *core[S]) podOf(call *ownCall) *pod {
	if call.Pod.UID != "" {
		p := c.ensure(call.Pod.UID)
		p.rename(call.Pod.Name, call.Pod.Namespace)
		return p
	}
	if x := c.index[call.ID]; x != nil {
		return x.pod
	}
	for p := range c.dirty { // the pod of an ID just made by the agent; a claim may name another pod
		if p.expectation(call.ID, CauseAck) != nil {
			return p
		}
	}
	return nil
}

// loseAck notes that the begin or the end of a call found no room: a list finds the effects of the
// call, and until then no pod is read by its known IDs.
func (c *core[S]) loseAck(now instant) {
	c.count.acksLost++
	c.uncertain = max(c.uncertain, now)
	c.sched.ask(now, false)
}

// onReturned applies the end of a call: the pod is read a moment later. A failed call may have
// taken effect, or may yet.
func (c *core[S]) onReturned(p *pod, a *ack, now instant) {
	c.count.acks++
	if p != nil {
		c.endCall(p, a, now)
	} else if a.failed || len(a.items) == 0 {
		c.uncertain = max(c.uncertain, a.at)
		c.sched.ask(now, false)
	}
	for _, it := range a.items {
		switch e, ok := a.expectation(it); {
		case !ok:
		case p != nil:
			c.expect(p, c.find(p, 0, e.id), e, now)
		default:
			c.expectEarly(e, now)
		}
	}
}

// endCall applies the end of a call to the call's pod.
func (c *core[S]) endCall(p *pod, a *ack, now instant) {
	if c.calls[a.call.serial] != nil {
		delete(c.calls, a.call.serial)
		p.calls--
		if a.call.ID == "" {
			p.creating--
		}
	}
	c.holdFor(p, now)
	if a.failed {
		c.onFailed(p, a.call.ID, a.at, now)
	}
	if a.call.ID == "" && (a.failed || len(a.items) == 0) {
		p.unlisted = max(p.unlisted, a.at.add(c.cfg.RelistMax))
	}
	p.due = max(p.due, a.at)
}

// expectation returns what a call reports of an item, and whether it reports anything.
func (a *ack) expectation(it Item) (e expectation, ok bool) {
	ok = it.ID != "" && PhaseUnknown < it.Phase && it.Phase <= PhaseRemoved
	return expectation{reportKey: reportKey{it.ID, CauseAck}, kind: it.Kind, phase: it.Phase, at: a.at}, ok
}

// onFailed applies the failure of a call: a failed start ends a container, without an event, and a
// failed removal of a sandbox may work later.
func (c *core[S]) onFailed(p *pod, id string, at, now instant) {
	x, e := c.find(p, 0, id), cmp.Or(p.expectation(id, CauseAck), p.expectation(id, CauseClaim))
	switch {
	case x != nil && x.kind == Sandbox:
		x.cause = CauseRead // see pod.teardown
	case x != nil || e != nil && e.kind == Container:
		c.expect(p, x, expectation{reportKey: reportKey{id, CauseAck}, phase: PhaseExited, at: at}, now)
	}
}

// holdFor delays the read of a pod for the agent's own calls, which come in bursts, each announced
// by the runtime, and returns the end of the delay.
func (c *core[S]) holdFor(p *pod, now instant) instant {
	if p.hold <= now {
		p.hold = now.add(c.cfg.CallSettle)
	}
	return p.hold
}

// knownIDsMax is the number of IDs of a pod up to which reading each status costs the runtime no
// more than a list.
const knownIDsMax = 8

// knownItems returns the items of a pod if their statuses are a complete read of the pod, else nil:
// a list has shown the pod since the stream was connected, and every ID made since was made, and
// reported, by the agent.
func (c *core[S]) knownItems(p *pod) []Item {
	switch {
	case !c.cfg.TellsCalls, !c.connected(), p.creating > 0, c.calling:
		return nil
	case p.entry != statusEntry:
		return nil
	case c.lists.applied <= max(c.conn.connected, c.uncertain, p.unlisted, c.lastDiscard):
		return nil
	}
	items := p.shownItems()
	for i := range p.expected {
		e := &p.expected[i]
		switch {
		case c.find(p, 0, e.id) != nil:
		case e.cause != CauseAck && p.expectation(e.id, CauseAck) == nil:
			return nil // made by others, or of another pod
		case e.cause == CauseAck && e.phase < PhaseRemoved:
			items = append(items, Item{ID: e.id, Kind: e.kind, Phase: e.phase})
		}
	}
	if len(items) > knownIDsMax {
		return nil
	}
	return items
}
