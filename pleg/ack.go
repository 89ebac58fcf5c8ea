// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
)

// onAcks applies the agent's reports of its calls.
func (c *core[S]) onAcks(acks []ack, lost lostCalls, now instant) {
	c.untracked = lost.open
	if lost.some {
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
			c.beginCall(p, a, now)
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
	var first *pod // the pod of an ID just made by the agent; a claim may name another pod
	for p := range c.reads.dirty {
		if (first == nil || p.uid < first.uid) && p.expected.get(call.ID, CauseAck) != nil {
			first = p
		}
	}
	return first
}

// loseAck notes that the begin or the end of a call found no room: a list finds the effects of the
// call, and until then no pod is read by its known IDs.
func (c *core[S]) loseAck(now instant) {
	c.out.count[countAcksLost]++
	c.uncertain = max(c.uncertain, now)
	c.trust.sched.ask(now)
}

// onReturned applies the end of a call: the pod is read a moment later. A failed call may have
// taken effect, or may yet.
func (c *core[S]) onReturned(p *pod, a *ack, now instant) {
	c.out.count[countAcks]++
	if p != nil {
		c.endCall(p, a, now)
	} else if a.failed || len(a.items) == 0 {
		c.uncertain = max(c.uncertain, a.at)
		c.trust.sched.ask(now)
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

// beginCall applies the begin of a call to the call's pod. A call that begins while the pod is held
// is one more of the burst.
func (c *core[S]) beginCall(p *pod, a *ack, now instant) {
	p.calls++
	if a.call.ID == "" {
		p.creating++
	}
	c.calls[a.call.serial] = p
	if p.hold > now {
		p.holdFor(&c.cfg, p.calls > 0, now)
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
	p.called = a.at
	p.holdFor(&c.cfg, p.calls > 0, now)
	if a.failed {
		c.onFailed(p, a.call.ID, a.at, now)
	}
	if a.call.ID == "" && (a.failed || len(a.items) == 0) {
		p.unlisted = max(p.unlisted, a.at.add(c.cfg.LateCall))
	}
	p.lookAfter(a.at)
}

// expectation returns what a call reports of an item, and whether it reports anything.
func (a *ack) expectation(it Item) (e expectation, ok bool) {
	ok = it.ID != "" && PhaseUnknown < it.Phase && it.Phase <= PhaseRemoved
	return expectation{
		reportKey: reportKey{it.ID, CauseAck},
		kind:      it.Kind,
		name:      it.Name,
		phase:     it.Phase,
		at:        a.at,
	}, ok
}

// onFailed applies the failure of a call: a failed start ends a container, without an event, and a
// failed removal of a sandbox may work later.
func (c *core[S]) onFailed(p *pod, id string, at, now instant) {
	x := c.find(p, 0, id)
	e := cmp.Or(p.expected.get(id, CauseAck), p.expected.get(id, CauseClaim))
	switch {
	case x != nil && x.kind == Sandbox:
		x.disown()
	case x != nil || e != nil && e.kind == Container:
		c.expect(p, x, expectation{
			reportKey: reportKey{id, CauseAck},
			phase:     PhaseExited,
			failed:    true,
			at:        at,
		}, now)
	}
}

// knownIDsMax is the number of IDs of a pod up to which reading each status costs the runtime no
// more than a list.
const knownIDsMax = 8

// knownItems returns the items of a pod if their statuses are a complete read of the pod, else nil:
// a list has shown the pod since the stream was connected, and every ID made since was made, and
// reported, by the agent.
func (c *core[S]) knownItems(p *pod) []Item {
	switch {
	case !c.cfg.TellsCalls, !c.stream.up(), p.creating > 0, c.untracked:
		return nil
	case p.entry != statusEntry:
		return nil
	case c.lists.applied <= max(c.stream.connected, c.uncertain, p.unlisted, c.trust.lastDiscard):
		return nil
	}
	items := p.shownItems()
	for i := range p.expected.all {
		e := &p.expected.all[i]
		switch {
		case c.find(p, 0, e.id) != nil:
		case e.cause != CauseAck && p.expected.get(e.id, CauseAck) == nil:
			return nil // made by others, or of another pod
		case e.cause != CauseAck || e.phase == PhaseRemoved:
		case e.failed:
			return nil // nobody knows its phase, and a list does, even if the status cannot be read
		case e.kind == Container && e.name == "":
			return nil // a list has the name, even if the status cannot be read
		default:
			items = append(items, e.item())
		}
	}
	if len(items) > knownIDsMax {
		return nil
	}
	return items
}
