// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"slices"
)

// subscriber is a GetContainerEvents call. The runtime's mutex guards its fields; wake has capacity
// 1.
type subscriber struct {
	wake    chan struct{}
	next    uint64   // first event not taken
	done    uint64   // first event not finished sending
	replay  []*event // to be sent before anything else
	stalled bool
	ended   bool  // by the driver, with end
	end     error // nil: without an error
}

func (s *subscriber) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// subscribe adds a subscriber. A backlog belongs to the first subscriber.
func (rt *Runtime) subscribe() *subscriber {
	h, f := &rt.hub, &rt.faults
	first := h.live() == 0
	if first && rt.cfg.Profile.Delivery == DeliverBroadcast {
		rt.expire()
	}
	h.subSeq++
	s := &subscriber{wake: make(chan struct{}, 1)}
	if first {
		h.limit = h.head
		s.next = h.head
	} else {
		s.next = min(h.limit, h.tail())
	}
	s.done = s.next
	if rt.roll(rollReplay, f.Replay, "replay", h.subSeq) {
		old, ahead := h.recent, s.next
		if rt.cfg.Profile.Delivery == DeliverCompete {
			ahead = h.head
		}
		for len(old) > 0 && old[len(old)-1].seq >= ahead {
			old = old[:len(old)-1]
		}
		s.replay = append(s.replay, old[max(0, len(old)-cmp.Or(f.ReplayEvents, 100)):]...)
	}
	h.served = true
	h.subs = append(h.subs, s)
	rt.advance()
	s.poke()
	return s
}

// take returns the next event visible to the subscriber, or nil.
func (rt *Runtime) take(s *subscriber) *event {
	h := &rt.hub
	var ev *event
	switch {
	case s.stalled:
		return nil
	case len(s.replay) > 0:
		ev = s.replay[0]
		s.replay = s.replay[1:]
		ev.inFlight++
		return ev
	case rt.cfg.Profile.Delivery == DeliverCompete:
		if len(h.log) == 0 {
			return nil
		}
		ev = h.log[0]
		ev.inFlight++
		rt.trim(h.head + 1)
		return ev
	case s.next >= h.tail() || s.next >= h.limit:
		return nil
	}
	ev = h.log[s.next-h.head]
	ev.inFlight++
	s.next++
	rt.advance()
	return ev
}

// finish notes the end of a send begun by take.
func (rt *Runtime) finish(s *subscriber, ev *event, err error) {
	ev.inFlight--
	if err == nil {
		ev.delivered++
	}
	s.done = s.next
	if ev.seq < rt.hub.head || rt.hub.tail() <= ev.seq {
		rt.concluded(ev)
	}
	rt.advance()
}

// leave removes a subscriber. Events in its channel, and in no other, are lost; events held by
// callers go to the backlog.
func (rt *Runtime) leave(s *subscriber) {
	h := &rt.hub
	if i := slices.Index(h.subs, s); i >= 0 {
		h.subs = slices.Delete(h.subs, i, i+1)
		rt.orphaned()
	}
}

// stall makes the subscriber take nothing and block nobody.
func (rt *Runtime) stall(s *subscriber) {
	if !s.stalled {
		s.stalled = true
		rt.orphaned()
	}
}

// orphaned lets go of the events held by a subscriber that no longer counts.
func (rt *Runtime) orphaned() {
	h := &rt.hub
	if h.live() == 0 {
		switch rt.cfg.Profile.Delivery {
		case DeliverBroadcast:
			rt.trim(min(h.limit, h.tail()))
		case DeliverSequential:
			rt.trim(h.tail())
		}
	}
	rt.advance()
}

// resetHub forgets everything, as a restart does. The old subscribers' goroutines find their
// streams broken.
func (rt *Runtime) resetHub() {
	h := &rt.hub
	for _, s := range h.subs {
		s.stalled = true
	}
	h.subs = nil
	rt.trim(h.tail())
	h.limit = h.head
	h.recent = nil
	h.served = false
}
