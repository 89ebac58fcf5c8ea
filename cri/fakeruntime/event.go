// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"bytes"
	"cmp"
	"time"
)

// eventKind is the runtime.v1.ContainerEventType.
type eventKind int64

const (
	eventCreated eventKind = iota
	eventStarted
	eventStopped
	eventDeleted
)

// zeroStamp is the nanosecond value of Go's zero time, sent by containerd as created_at of a
// sandbox under deletion.
const zeroStamp = -6795364578871345152

// event is a message for the subscribers. The runtime's mutex guards all but wire, which does not
// change.
type event struct {
	seq  uint64 // number among the emitted events
	wire []byte // runtime.v1.ContainerEventResponse
	pad  int    // padding of an oversized event
	// unreadable is whether clients may end their stream because of it: it is too large, or invalid.
	unreadable bool
	at         time.Time
	written    int64 // bytes of this event and of all emitted before it
	how        Emission
	change     uint64 // Seq of the reported change, if recorded
	recorded   bool

	stuck     bool          // has no room in a subscriber's channel
	room      chan struct{} // closed when there is room; nil: nobody waits
	receivers int           // subscribers that have it in their queue or send it
	delivered bool          // to one of them at least
}

// accept releases the caller that waits for room for the event.
func (ev *event) accept() {
	if ev.stuck && ev.room != nil {
		close(ev.room)
	}
	ev.stuck = false
}

// heldEvent is an event waiting to be overtaken by another event of its container.
type heldEvent struct {
	kind eventKind
	ev   *event
}

// payload is the subject of an event.
type payload struct {
	kind eventKind
	sb   *sandbox
	c    *container // nil: the sandbox itself
}

func (p payload) id() string {
	if p.c != nil {
		return p.c.id
	}
	return p.sb.id
}

// emitSandbox and emitContainer send the event of a change just made, unless the profile has none,
// the runtime is down, or a fault prevents it. They return the event, which knows its fate.
func (rt *Runtime) emitSandbox(sb *sandbox, kind eventKind) *event {
	ev := &event{}
	rt.emit(payload{kind, sb, nil}, ev)
	return ev
}

func (rt *Runtime) emitContainer(c *container, kind eventKind) *event {
	p := payload{kind, c.sb, c}
	held := c.held
	if held == nil && rt.mayHold(p) {
		return rt.hold(p)
	}
	ev := &event{}
	rt.emit(p, ev)
	if held != nil {
		rt.release(c, held)
	}
	return ev
}

// mayHold decides whether the next event of its container overtakes the event.
func (rt *Runtime) mayHold(p payload) bool {
	if !rt.tells() {
		return false
	}
	switch p.kind {
	case eventStarted:
		return rt.roll(rollSwapStart, rt.faults.SwapStartStop, p.c.id)
	case eventStopped:
		return rt.roll(rollSwapStop, rt.faults.SwapStopDelete, p.c.id)
	}
	return false
}

func (rt *Runtime) hold(p payload) *event {
	ev := &event{how: Emitted}
	h := &heldEvent{p.kind, ev}
	p.c.held = h
	rt.thisLife(swapHold, func() { rt.release(p.c, h) }, func() {
		if p.c.held == h {
			p.c.held = nil
			rt.settle(ev, Lost)
		}
	})
	return ev
}

// release sends a held event, with the payload of now.
func (rt *Runtime) release(c *container, h *heldEvent) {
	if c.held != h {
		return
	}
	c.held = nil
	rt.emit(payload{h.kind, c.sb, c}, h.ev)
}

// tells says whether the runtime has an event stream at all, and is up.
func (rt *Runtime) tells() bool {
	return rt.cfg.Profile.Events == EventsOn && rt.process == processUp
}

// emit encodes and publishes an event, now or later, and settles its fate so far.
func (rt *Runtime) emit(p payload, ev *event) {
	if !rt.tells() {
		rt.settle(ev, NoEvent)
		return
	}
	id := p.id()
	k := uint64(p.kind)
	f := &rt.faults
	broken := parts{
		stale:      rt.roll(rollStale, f.Stale, id, k),
		noSandbox:  rt.roll(rollNilSandbox, f.NilSandbox, id, k),
		bare:       rt.roll(rollBarePayload, f.BarePayload, id, k),
		noStatuses: rt.roll(rollNilStatuses, f.NilStatuses, id, k),
		invalid:    rt.roll(rollInvalidEvent, f.InvalidEvent, id, k),
	}
	if rt.drops(p) || rt.cfg.Profile.PayloadAllOrNothing && (broken.noSandbox || broken.noStatuses) {
		rt.settle(ev, Faulted)
		return
	}
	ev.wire = rt.encodeEvent(p, broken)
	if rt.roll(rollOversize, f.Oversize, id, k) {
		ev.pad = cmp.Or(f.OversizeBytes, 17<<20)
	}
	ev.unreadable = broken.invalid || ev.pad > 0
	again := rt.roll(rollDuplicate, f.Duplicate, id, k)
	publish := func() {
		rt.settle(ev, rt.publish(ev))
		if again {
			rt.publish(&event{wire: ev.wire, pad: ev.pad, unreadable: ev.unreadable})
		}
	}
	if !rt.roll(rollDelay, f.Delay, id, k) {
		publish()
		return
	}
	rt.settle(ev, Emitted)
	rt.thisLife(cmp.Or(f.DelayBy, 200*time.Millisecond), publish, func() { rt.settle(ev, Lost) })
}

// drops reports whether a fault suppresses the event.
func (rt *Runtime) drops(p payload) bool {
	f := &rt.faults
	ofKind := f.DropCreated
	switch p.kind {
	case eventStarted:
		ofKind = f.DropStarted
	case eventStopped:
		ofKind = f.DropStopped
	case eventDeleted:
		ofKind = f.DropDeleted
	}
	id := p.id()
	kind := uint64(p.kind)
	return rt.roll(rollDrop, f.Drop, id, kind) || rt.roll(rollDropCreated+rollKind(p.kind), ofKind, id)
}

// thisLife schedules fn, or gone instead if the runtime has died meanwhile.
func (rt *Runtime) thisLife(d time.Duration, fn, gone func()) {
	life := rt.incarnation
	rt.sched.after(d, func() {
		if rt.incarnation == life && rt.process == processUp {
			fn()
		} else {
			gone()
		}
	})
}

// settle writes the fate of an event into the history.
func (rt *Runtime) settle(ev *event, how Emission) {
	ev.how = how
	if ev.recorded {
		if ch := rt.history.at(ev.change); ch != nil {
			ch.Event = how
		}
	}
}

// parts are the ways in which a payload can be wrong.
type parts struct{ stale, noSandbox, bare, noStatuses, invalid bool }

// encodeEvent writes the message with the present knowledge.
func (rt *Runtime) encodeEvent(p payload, broken parts) []byte {
	id := p.id()
	kind := int64(p.kind)
	b := make([]byte, 0, 4096)
	if broken.invalid {
		switch hashOf(rt.cfg.Seed, id, uint64(p.kind)) % 3 {
		case 0:
			kind = 99
		case 1:
			id = ""
		default:
			id = "\xff\xfe" + id[2:]
		}
	}
	b = appendString(b, 1, id)
	b = appendInt(b, 2, kind)
	if !broken.noSandbox && !(p.c == nil && p.kind == eventDeleted && rt.cfg.Profile.DeletedAlone) {
		created := p.sb.createdAt
		if p.c == nil && p.kind == eventDeleted {
			created = zeroStamp
		}
		st := p.sb.appendBareStatus(make([]byte, 0, 2048))
		if !broken.bare {
			st = p.sb.appendStatus(st[:0], p.sb.state, created)
		}
		b = appendMessage(b, 4, st)
	}
	if !broken.noStatuses {
		b = rt.appendPayloadContainers(b, p, broken.stale)
	}
	// The stamp is taken after the statuses were read, which is the defect of real runtimes.
	b = appendInt(b, 3, rt.stamp())
	return bytes.Clone(b)
}

func (rt *Runtime) appendPayloadContainers(b []byte, p payload, stale bool) []byte {
	containers := p.sb.containers
	if rt.cfg.Profile.PayloadByUID {
		containers = nil
		uid := p.sb.uid
		if p.c != nil {
			uid = p.c.labelUID
		}
		if known := rt.store.pods[uid]; known != nil && uid != "" {
			containers = known.labelledC
		}
	}
	status := make([]byte, 0, 2048)
	put := func(c *container, v view) {
		status = c.appendStatus(status[:0], v)
		b = appendMessage(b, 5, status)
	}
	for i := range containers {
		c := containers[i]
		if rt.cfg.Profile.NewestFirst {
			c = containers[len(containers)-1-i]
		}
		v := c.view
		if stale && c != p.c {
			if c.prev == nil {
				continue // not there yet
			}
			v = *c.prev
		}
		put(c, v)
	}
	if stale {
		for _, g := range p.sb.ghosts {
			if g.c != p.c {
				put(g.c, g.view)
			}
		}
	}
	return b
}
