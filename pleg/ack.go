// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"sync"
)

// OwnCall is a call by which the agent itself changes the runtime: a call that makes, starts, stops
// or removes a sandbox or a container.
type OwnCall struct {
	// Pod is the pod of the call, with its name if the call has it. The UID may be empty if ID is
	// known.
	Pod PodRef
	// ID is the sandbox or container named by the call; empty if the call makes one.
	ID string
}

// Calling announces a call that the agent is about to make, and returns the function that reports
// its end, to be called once. Without an error, the items are in the given phases now; an item
// needs its ID, Kind and Phase, and may have its Name. With an error, or without items, the call
// may have changed something, and the pod is read.
//
// An acknowledged phase is believed without a read, and an ID that the agent has made is known at
// once: later events of the same change are no news. But an ack is no read: the pod's status is
// still to be read, once for the changes of a few calls, and nothing becomes fresh for
// GetNewerThan. A container counts as ended only if it ran when the call began.
//
// Neither function blocks. Both are safe for concurrent use; calls about the same ID are reported
// in the order in which they are made. They have no effect when Run is over.
func (g *Generator[S]) Calling(call OwnCall) (returned func(err error, now ...Item)) {
	c := g.acks.begin(call, g.clock)
	return func(err error, now ...Item) {
		g.acks.put(ack{call: c, returned: true, failed: err != nil, items: now}, g.clock)
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
// blocks. A call without room is lost as a whole: see core.onAcksLost.
type ackBox struct {
	wake chan struct{} // capacity 1: one announcement stands for all waiting acks
	max  int           // bound on the acks when a call begins; calls that have begun may end, too

	mu     sync.Mutex // owns the fields below
	acks   []ack
	serial uint64 // of the last call
	lost   bool
	closed bool
}

func newAckBox(max int) *ackBox { return &ackBox{wake: make(chan struct{}, 1), max: max} }

// begin takes a call that is about to be made.
func (b *ackBox) begin(call OwnCall, clk clock) ownCall {
	c := ownCall{OwnCall: call}
	b.mu.Lock()
	if b.serial++; len(b.acks) < b.max {
		c.began = clk.now()
	}
	c.serial = b.serial
	b.mu.Unlock()
	b.put(ack{call: c}, clk)
	return c
}

// put stamps an ack and keeps it for the loop, if its call had room.
func (b *ackBox) put(a ack, clk clock) {
	b.mu.Lock()
	a.at = clk.now() // under the mutex: stamps are in order
	switch {
	case b.closed:
	case a.call.began == 0:
		b.lost = true // the call's changes are now for a list to find
	default:
		b.acks = append(b.acks, a)
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take moves the acks from before a time into buf, which is reused. Lost says that some did not fit
// since the last take.
func (b *ackBox) take(buf []ack, by instant) (acks []ack, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(buf)
	n := len(b.acks)
	for n > 0 && b.acks[n-1].at > by { // rarely any; the loop is woken for them again
		n--
	}
	acks = append(buf[:0], b.acks[:n]...)
	b.acks = slices.Delete(b.acks, 0, n)
	lost, b.lost = b.lost, false
	return acks, lost
}

// close drops all acks, present and future.
func (b *ackBox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acks, b.closed = nil, true
}

// own is the state of the agent's own calls about a pod.
type own struct {
	calls    int32   // under way
	creating int32   // create calls among them
	returned instant // when the last call returned
	hold     instant // when changes by calls are read, unless somebody waits for the pod
	listed   instant // start of the latest read that would have shown an ID that nobody knew
	unlisted instant // when a call may last have made an unknown ID
}

// takeAcks applies acks.
func (c *core[S]) takeAcks(acks []ack, lost bool, now instant) {
	if lost {
		c.onAcksLost(now)
	}
	for i := range acks {
		c.onAck(&acks[i], now)
	}
	c.reviewAffected(now)
}

// onAcksLost handles acks lost for want of room. A list finds the changes instead.
func (c *core[S]) onAcksLost(now instant) {
	c.count.acksLost++
	c.sched.ask(now, false)
}

// onAck applies the ack of one call.
func (c *core[S]) onAck(a *ack, now instant) {
	call := &a.call
	if !a.returned {
		if p := c.podOfCall(call); p != nil {
			c.calls[call.serial] = p.uid
			p.own.calls++
			if call.ID == "" {
				p.own.creating++
			}
		}
		return
	}
	c.count.acks++
	p := c.pods[c.calls[call.serial]]
	if delete(c.calls, call.serial); p != nil {
		p.own.calls--
		if call.ID == "" {
			p.own.creating--
		}
	} else if p = c.podOfCall(call); p == nil && len(a.items) == 0 {
		c.sched.ask(now, false) // the pod of the change is unknown
		return
	}
	for _, it := range a.items {
		if x := c.index[it.ID]; x != nil {
			c.acked(x, it.Phase, call.began, a.at, now)
		} else if p == nil {
			c.sched.ask(now, false)
		} else if call.ID == "" && call.began > c.forgotten {
			c.addCreated(p, it, a.at, now)
		} else { // an ID from before this generator, or one forgotten meanwhile
			c.mayHaveChanged(p, now)
		}
	}
	if p == nil {
		return
	}
	p.own.returned = max(p.own.returned, a.at)
	if a.failed || len(a.items) == 0 {
		p.callFailed = p.callFailed || a.failed
		p.uncertainCreate = p.uncertainCreate || a.failed && call.ID == ""
		c.mayHaveChanged(p, now)
	}
	c.reviewLater(p)
}

// podOfCall returns the pod of a call, or nil if the call does not say.
func (c *core[S]) podOfCall(call *ownCall) *pod {
	if call.Pod.UID != "" {
		p := c.ensure(call.Pod.UID)
		c.name(p, &Pod{Name: call.Pod.Name, Namespace: call.Pod.Namespace})
		return p
	}
	if x := c.index[call.ID]; x != nil {
		return x.pod
	}
	return nil
}

// mayHaveChanged has a pod read, because a call may have changed something of the pod.
func (c *core[S]) mayHaveChanged(p *pod, now instant) {
	p.changedAt, p.want, p.own.unlisted = now, max(p.want, now), now
	c.reviewLater(p)
}

// acked applies the success of a call, which began and returned at the given times, and brought a
// known ID to a phase. acked never takes a phase back.
func (c *core[S]) acked(x *item, phase Phase, began, at, now instant) {
	if phase == PhaseUnknown || phase > PhaseRemoved {
		return
	}
	p := x.pod
	c.reviewLater(p)
	if phase == PhaseExited && x.kind == Container && (x.phase < PhaseRunning || x.phase == PhaseRunning && x.since > began) {
		c.mayHaveChanged(p, now) // a call does not end a container that did not run when the call began
		return
	}
	switch {
	case phase > x.phase:
		c.setPhase(x, phase, CauseAck, false, 0, now)
		x.since, x.confirmed = at, at
		c.settleLater(p, at, now)
	case phase == x.phase && phase < PhaseRemoved:
		x.byClaim, x.confirmed = false, max(x.confirmed, at)
		if x.statusUnknown && x.cached != phaseNone { // reads did not know that state: the next read may
			x.cached = PhaseUnknown
			c.settleLater(p, at, now)
		}
	case phase == x.phase && x.byClaim:
		x.byClaim, x.confirmed = false, now
		c.expiring.push(expiry{at: now, pod: p})
	case x.byClaim: // a read must know of this call to overrule the claim; the grace runs from the claim
		x.confirmed = max(x.confirmed, at.add(-c.cfg.Grace))
	}
	if x.kind == Sandbox && phase == PhaseExited && x.phase == phase {
		x.stoppedByAgent = true
	}
}

// addCreated adds an ID that a create call has made, and that no read has shown. No read begun
// after the call returned has been applied yet: acks come first in each turn of the loop.
func (c *core[S]) addCreated(p *pod, it Item, at, now instant) {
	if it.ID == "" || it.Phase == PhaseUnknown || it.Phase > PhaseRunning {
		c.mayHaveChanged(p, now) // no call makes such an item
		return
	}
	x := &item{
		id: it.ID, name: it.Name, kind: it.Kind,
		place:   place{pod: p},
		belief:  belief{phase: it.Phase, first: at, since: at},
		shown:   shown{cached: phaseNone, listed: phaseNone},
		watched: watched{emitted: phaseNone},
	}
	if l, ok := p.conflicts[it.ID]; ok {
		x.listed = l.Phase
		delete(p.conflicts, it.ID)
	}
	c.index[it.ID] = x
	p.add(x)
	cause, byClaim, stamp := CauseAck, false, int64(0)
	if s, ok := c.takeUnconfirmed(p, it.ID); ok {
		if x.claimed = s.phase; s.phase >= it.Phase {
			x.phase, cause, byClaim, stamp = s.phase, CauseClaim, s.phase > it.Phase, s.stamp
			if byClaim {
				at = max(at, s.at)
			}
		}
	}
	phase := x.phase
	c.countIn(x)
	c.setPhase(x, phase, cause, byClaim, stamp, now)
	x.since, x.confirmed = at, at
	c.settleLater(p, at, now)
}

// takeUnconfirmed removes the claims of an ID that has become known from the unconfirmed IDs, and
// returns them.
func (c *core[S]) takeUnconfirmed(p *pod, id string) (s unconfirmedID, ok bool) {
	if s, ok = p.unconfirmed[id]; ok {
		delete(p.unconfirmed, id)
		c.unconfirmed--
	}
	if h, also := c.unowned[id]; also { // some claims named the pod, others did not
		delete(c.unowned, id)
		if !ok || h.phase > s.phase {
			s, ok = h, true
		}
	}
	return s, ok
}

// uncertainCreatesMax bounds the pods without a record for which a create call may still take
// effect.
const uncertainCreatesMax = 1024

// keepUncertainCreate keeps, of a record to be forgotten, that a failed create call may still take
// effect. At the bound, the pod forgotten first is dropped.
func (c *core[S]) keepUncertainCreate(p *pod, now instant) {
	if !p.uncertainCreate {
		return
	}
	if len(c.uncertainCreates) == uncertainCreatesMax {
		c.uncertainCreates, c.uncertainDropped = slices.Delete(c.uncertainCreates, 0, 1), now
	}
	c.uncertainCreates = append(c.uncertainCreates, p.uid)
}

// restoreUncertainCreate puts that back into a new record of the pod.
func (c *core[S]) restoreUncertainCreate(p *pod) {
	if i := slices.Index(c.uncertainCreates, p.uid); i >= 0 {
		c.uncertainCreates = slices.Delete(c.uncertainCreates, i, i+1)
		p.callFailed, p.uncertainCreate = true, true
	}
}

// listedAt returns the begin of the latest read that would have shown an unknown ID of the pod.
func (c *core[S]) listedAt(p *pod) instant { return max(p.own.listed, c.lists.applied) }

// knownIDsMax is the number of IDs of a pod up to which reading each status costs the runtime no
// more than a list.
const knownIDsMax = 8

// knowsAllIDs says that every ID of the pod in the runtime is known, so that the statuses of the
// known IDs are a complete read of the pod: a list has shown the pod since the stream was
// connected, and every ID made since then was made, and acknowledged, by the agent.
func (c *core[S]) knowsAllIDs(p *pod) bool {
	o := &p.own
	switch {
	case !c.cfg.TellsCalls, !c.connected(), c.count.acksLost > 0, c.lists.applied <= c.uncertainDropped, len(c.unowned) > 0:
		return false
	case o.creating > 0, p.callFailed, c.listedAt(p) <= max(o.unlisted, c.conn.connected):
		return false
	case p.failed, p.disagrees, p.foreignID, p.statusUnknown(), p.hasUnconfirmed(), len(p.conflicts) > 0:
		return false
	}
	live := 0
	for _, x := range p.items {
		switch {
		case x.phase == PhaseUnknown, x.phase == PhaseRemoved && x.byClaim:
			return false // only a list can tell
		case x.phase < PhaseRemoved:
			live++
		}
	}
	return 0 < live && live <= knownIDsMax
}

// liveItems returns the items that the runtime is believed to have of a pod.
func liveItems(p *pod) []Item {
	items := make([]Item, 0, len(p.items))
	for _, x := range p.items {
		if x.phase < PhaseRemoved {
			items = append(items, Item{ID: x.id, Kind: x.kind, Phase: x.phase, Name: x.name})
		}
	}
	return items
}

// noteChange notes news from the stream about a pod, which is then read: at once, or, if the
// agent's own calls are changing the pod, together with their changes.
func (c *core[S]) noteChange(p *pod, now instant) {
	if p.own.calls > 0 || p.own.hold > now {
		c.settleLater(p, now, now)
		return
	}
	p.noteChange(now)
}

// settleLater notes news about a pod since a time, and has the pod read a moment after the first
// unsettled call of the agent's, or sooner if a read is due anyway.
func (c *core[S]) settleLater(p *pod, at, now instant) {
	if p.own.hold <= now {
		p.own.hold = now.add(c.cfg.CallSettle)
	}
	p.changedAt, p.reread = max(p.changedAt, at), ladder{}
	if c.dirty[p.uid] != p || p.teardown.climbed() || p.notYet > p.own.hold {
		p.notYet = p.own.hold
	}
}
