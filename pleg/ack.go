// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"sync"
)

// OwnCall is a call by which the agent itself changes what the runtime has: it makes, starts, stops
// or removes a sandbox or a container.
type OwnCall struct {
	// Pod is the pod that the call is about, with its name if the call says it. Its UID may be empty
	// if ID is known.
	Pod PodRef
	// ID is the sandbox or container that the call names, empty if it makes one.
	ID string
}

// Calling tells the generator that the agent is about to make a call, and returns what tells of its
// end, to be called once. Without an error, what the call was about is in the given phases now; an
// item needs its ID, Kind and Phase, and may have its Name. With an error, or without any item, the
// call may have changed something, and the pod is read.
//
// An acknowledged phase needs no read to be believed, and an ID that the agent has made is known at
// once: the runtime's events that tell the same afterwards are no news. It is no read, though: the
// pod's status is still to be read, once for what a few calls have changed, and nothing becomes
// fresh for GetNewerThan. A container is believed to have ended if it ran when the call began.
//
// Neither function blocks. Both are safe for concurrent use; calls about the same ID are told in
// the order in which they are made. They have no effect when Run is over.
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
	began  instant // 0 if there was no room for it
}

// ack is what the agent tells of a call: that it begins, or how it ended.
type ack struct {
	call     ownCall
	at       instant
	returned bool
	failed   bool
	items    []Item
}

// ackBox takes what the agent tells of its calls and hands it to the generator's loop, in order.
// Putting never blocks. A call for which there is no room is lost as a whole: see core.onAcksLost.
type ackBox struct {
	wake chan struct{} // capacity 1: what is already announced need not be announced again
	max  int           // of what is there when a call begins; those that have begun may end, too

	mu     sync.Mutex // owns what follows
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

// put stamps an ack and keeps it for the loop, if there was room for its call.
func (b *ackBox) put(a ack, clk clock) {
	b.mu.Lock()
	a.at = clk.now() // under the mutex: stamps are in order
	switch {
	case b.closed:
	case a.call.began == 0:
		b.lost = true // nobody else will tell what it has changed
	default:
		b.acks = append(b.acks, a)
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take moves what was told by a time into what buf is reused for. Lost says that some did not fit
// since the last time.
func (b *ackBox) take(buf []ack, by instant) (acks []ack, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(buf)
	n := len(b.acks)
	for n > 0 && b.acks[n-1].at > by { // as good as none: the loop is told of them, too
		n--
	}
	acks = append(buf[:0], b.acks[:n]...)
	b.acks = slices.Delete(b.acks, 0, n)
	lost, b.lost = b.lost, false
	return acks, lost
}

// close drops what is there and whatever is still to come.
func (b *ackBox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acks, b.closed = nil, true
}

// own is what is known of the agent's own calls about a pod.
type own struct {
	calls    int32   // under way
	creating int32   // those of them that make something
	returned instant // when the last one did
	hold     instant // what calls have changed is read then, unless somebody waits for the pod
	listed   instant // start of the latest read that would have shown an ID that nobody knew
	unlisted instant // when a call may last have made an ID that nobody knows
}

// takeAcks applies what the agent has told of its calls.
func (c *core[S]) takeAcks(acks []ack, lost bool, now instant) {
	if lost {
		c.onAcksLost(now)
	}
	for i := range acks {
		c.onAck(&acks[i], now)
	}
	c.reviewAffected(now)
}

// onAcksLost is told that acks found no room. A list tells what they would have told.
func (c *core[S]) onAcksLost(now instant) {
	c.count.acksLost++
	c.sched.ask(now, false)
}

// onAck applies what the agent has told of one call.
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
		c.sched.ask(now, false) // nobody can tell what it has changed
		return
	}
	for _, it := range a.items {
		if x := c.index[it.ID]; x != nil {
			c.acked(x, it.Phase, call.began, a.at, now)
		} else if p == nil {
			c.sched.ask(now, false)
		} else if call.ID == "" && call.began > c.forgotten {
			c.addCreated(p, it, a.at, now)
		} else { // it was there before this generator, or may have gone and been forgotten meanwhile
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

// podOfCall returns the pod that a call is about, nil if that cannot be told.
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

// mayHaveChanged has a pod read: a call may have changed something of it.
func (c *core[S]) mayHaveChanged(p *pod, now instant) {
	p.changedAt, p.want, p.own.unlisted = now, max(p.want, now), now
	c.reviewLater(p)
}

// acked applies that a call of the agent's, which began and returned at the given times, has
// brought a known ID to a phase. It never takes a phase back.
func (c *core[S]) acked(x *item, phase Phase, began, at, now instant) {
	if phase == PhaseUnknown || phase > PhaseRemoved {
		return
	}
	p := x.pod
	c.reviewLater(p)
	if phase == PhaseExited && x.kind == Container && (x.phase < PhaseRunning || x.phase == PhaseRunning && x.since > began) {
		c.mayHaveChanged(p, now) // a call need not end what did not run when it began
		return
	}
	switch {
	case phase > x.phase:
		c.setPhase(x, phase, CauseAck, false, 0, now)
		x.since, x.confirmed = at, at
		c.settleLater(p, at, now)
	case phase == x.phase && phase < PhaseRemoved:
		x.byClaim, x.confirmed = false, max(x.confirmed, at)
		if x.statusUnknown && x.cached != phaseNone { // reads did not know that state: the next one may
			x.cached = PhaseUnknown
			c.settleLater(p, at, now)
		}
	case phase == x.phase && x.byClaim:
		x.byClaim, x.confirmed = false, now
		c.expiring.push(expiry{at: now, pod: p})
	case x.byClaim: // a read overrules the claim only if it knows of this call; the grace runs from the claim
		x.confirmed = max(x.confirmed, at.add(-c.cfg.Grace))
	}
	if x.kind == Sandbox && phase == PhaseExited && x.phase == phase {
		x.stoppedByAgent = true
	}
}

// addCreated makes an ID known that a call of the agent's has made, and that no read has shown. No
// read that began after the call returned has been applied: acks come first in each turn of the
// loop.
func (c *core[S]) addCreated(p *pod, it Item, at, now instant) {
	if it.ID == "" || it.Phase == PhaseUnknown || it.Phase > PhaseRunning {
		c.mayHaveChanged(p, now) // no call makes such a thing
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

// takeUnconfirmed takes an ID of which the stream has told, and that has become known, from those
// that are not.
func (c *core[S]) takeUnconfirmed(p *pod, id string) (s unconfirmedID, ok bool) {
	if s, ok = p.unconfirmed[id]; ok {
		delete(p.unconfirmed, id)
		c.unconfirmed--
	}
	if h, also := c.unowned[id]; also { // some claims said whose it is, others did not
		delete(c.unowned, id)
		if !ok || h.phase > s.phase {
			s, ok = h, true
		}
	}
	return s, ok
}

// uncertainCreatesMax bounds the pods that have no record and of which a call may yet make
// something.
const uncertainCreatesMax = 1024

// keepUncertainCreate keeps, of a record that is forgotten, that a call may yet make something of
// the pod. When there are too many such pods, the one that was forgotten first is given up.
func (c *core[S]) keepUncertainCreate(p *pod, now instant) {
	if !p.uncertainCreate {
		return
	}
	if len(c.uncertainCreates) == uncertainCreatesMax {
		c.uncertainCreates, c.uncertainDropped = slices.Delete(c.uncertainCreates, 0, 1), now
	}
	c.uncertainCreates = append(c.uncertainCreates, p.uid)
}

// restoreUncertainCreate gives a new record what has outlived the last one of that pod.
func (c *core[S]) restoreUncertainCreate(p *pod) {
	if i := slices.Index(c.uncertainCreates, p.uid); i >= 0 {
		c.uncertainCreates = slices.Delete(c.uncertainCreates, i, i+1)
		p.callFailed, p.uncertainCreate = true, true
	}
}

// listedAt returns the start of the latest read that would have shown an ID of the pod that nobody
// knew.
func (c *core[S]) listedAt(p *pod) instant { return max(p.own.listed, c.lists.applied) }

// knownIDsMax is the number of IDs of a pod up to which reading the status of each costs the
// runtime no more than a list.
const knownIDsMax = 8

// knowsAllIDs says that the runtime has no ID of the pod that is not known, so that the pod can be
// read by the statuses of those that are: a list has shown it since the stream was connected, and
// all that can have come since the agent has made and told of.
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
			return false // that is for a list to tell
		case x.phase < PhaseRemoved:
			live++
		}
	}
	return 0 < live && live <= knownIDsMax
}

// answersFromMemory says that a pod is as the cache shows it, but for what the stream has not told
// yet, so that whoever waits for it need not wait for a read: the stream has earned trust, a read
// has shown the pod since the last call about it returned and since anything was last not heard,
// every claim has been borne out, and nothing is under way that could tell otherwise.
func (c *core[S]) answersFromMemory(p *pod) bool {
	switch {
	case !c.cfg.AnswersFromMemory, c.sched.period <= c.cfg.RelistBase, c.candidates.len() > 0:
		return false
	case c.dirty[p.uid] == p, c.reads(p), p.own.calls > 0:
		return false
	case c.readAt(p) <= max(p.own.returned, c.lastDiscard), c.readAt(p) < p.changedAt:
		return false
	}
	for _, x := range p.items {
		if x.statusUnknown {
			return false
		}
	}
	return c.knowsAllIDs(p)
}

// liveItems returns what the runtime is believed to have of a pod.
func liveItems(p *pod) []Item {
	items := make([]Item, 0, len(p.items))
	for _, x := range p.items {
		if x.phase < PhaseRemoved {
			items = append(items, Item{ID: x.id, Kind: x.kind, Phase: x.phase, Name: x.name})
		}
	}
	return items
}

// noteChange notes that the stream has told something new of a pod, so that it is read: at once,
// or, if the agent's own calls are at it, when what they have changed is.
func (c *core[S]) noteChange(p *pod, now instant) {
	if p.own.calls > 0 || p.own.hold > now {
		c.settleLater(p, now, now)
		return
	}
	p.noteChange(now)
}

// settleLater notes that something new is known of a pod since a time, and has it read a moment
// after the first of the agent's calls that have not been settled, or sooner if it was to be read
// anyway.
func (c *core[S]) settleLater(p *pod, at, now instant) {
	if p.own.hold <= now {
		p.own.hold = now.add(c.cfg.CallSettle)
	}
	p.changedAt, p.reread = max(p.changedAt, at), ladder{}
	if c.dirty[p.uid] != p || p.teardown.climbed() || p.notYet > p.own.hold {
		p.notYet = p.own.hold
	}
}
