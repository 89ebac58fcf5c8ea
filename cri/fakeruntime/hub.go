// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"slices"
	"time"
)

// hub carries events from the runtime to its subscribers. There is no goroutine in it: every change
// pumps events into the queues of the subscribers, as far as the profile's channels have room, and
// a subscriber's own goroutine takes from its queue. The runtime's mutex guards it.
type hub struct {
	// waiting are the events in no subscriber's queue. For DeliverBroadcast they are the backlog, or
	// still in the hands of blocked callers; otherwise they are in the shared channel.
	waiting []*event
	subs    []*subscriber
	emitted uint64
	written int64 // bytes of all emitted events
	most    int64 // bytes of a backlog
	subSeq  uint64
	served  bool     // somebody has subscribed since the runtime started
	recent  []*event // the newest, for replays
}

// subscriber is a GetContainerEvents call. The runtime's mutex guards its fields; wake has capacity
// 1.
type subscriber struct {
	wake    chan struct{}
	queue   []*event
	sending bool   // an event was taken, and its send has not ended
	stalled bool   // takes nothing, and blocks nobody
	ended   bool   // by the driver, with end
	end     error  // nil: without an error
	fresh   uint64 // number of the first event that is no replay
}

// replays reports whether an event comes to the subscriber again, or too late. Such an event has
// had its turn of ending or stalling a stream: it would do the same to each stream that has it, and
// what is new would be lost behind it.
func (s *subscriber) replays(ev *event) bool { return ev.seq < s.fresh }

// replay puts the last n of some old events into the subscriber's queue, but for those at which
// clients end their stream.
func (s *subscriber) replay(old []*event, n int) {
	old = slices.DeleteFunc(slices.Clone(old), func(ev *event) bool { return ev.unreadable })
	if len(old) == 0 {
		return
	}
	s.fresh = old[len(old)-1].seq + 1
	s.add(old[max(0, len(old)-n):]...)
}

func (s *subscriber) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// live reports whether any subscriber counts, and whether all of them have room for an event.
func (rt *Runtime) live() (live, room bool) {
	room = true
	for _, s := range rt.hub.subs {
		switch {
		case s.stalled:
			continue
		case rt.cfg.Profile.Delivery == DeliverBroadcast:
			room = room && len(s.queue) < rt.cfg.Profile.Slots
		default:
			room = room && len(s.queue) == 0 && !s.sending
		}
		live = true
	}
	return live, room
}

// publish gives an event to the subscribers, or discards the event by the profile's rules.
func (rt *Runtime) publish(ev *event) Emission {
	if !rt.tells() {
		return NoEvent
	}
	h := &rt.hub
	p := &rt.cfg.Profile
	live, _ := rt.live()
	ev.stuck = p.Delivery == DeliverBroadcast && live
	switch {
	case p.Delivery == DeliverBroadcast && !live && len(h.subs) > 0: // stalled subscribers swallow it
		return Discarded
	case p.Delivery == DeliverBroadcast && !live:
		rt.expire()
	case p.Delivery != DeliverBroadcast && len(h.waiting) >= p.Queue,
		p.Delivery == DeliverSequential && !live && h.served:
		return Discarded
	}
	ev.at = time.Now()
	ev.seq = h.emitted
	h.emitted++
	h.written += int64(len(ev.wire))
	ev.written = h.written
	h.waiting = append(h.waiting, ev)
	if p.Delivery == DeliverBroadcast { // the other channels are of a length
		rt.shorten()
	}
	const keep = 256
	if len(h.recent) >= keep {
		h.recent = slices.Delete(h.recent, 0, keep/2)
	}
	h.recent = append(h.recent, ev)
	h.recent = slices.Delete(h.recent, 0, h.surplus(h.recent))
	rt.pump()
	return Emitted
}

// pump moves waiting events into the queues of all subscribers, as long as all have room.
func (rt *Runtime) pump() {
	h := &rt.hub
	if rt.cfg.Profile.Delivery == DeliverCompete { // subscribers take waiting events by themselves
		for _, s := range h.subs {
			s.poke()
		}
		return
	}
	for live, room := rt.live(); live && room && len(h.waiting) > 0; _, room = rt.live() {
		for _, s := range h.subs {
			if !s.stalled {
				s.add(h.waiting[0])
			}
		}
		h.waiting = h.waiting[1:]
	}
}

// add puts events into the subscriber's queue.
func (s *subscriber) add(events ...*event) {
	for _, ev := range events {
		ev.receivers++
		ev.accept()
	}
	s.queue = append(s.queue, events...)
	s.poke()
}

// lose drops the n oldest waiting events.
func (rt *Runtime) lose(n int) {
	for _, ev := range rt.hub.waiting[:n] {
		ev.accept()
		rt.settle(ev, Lost)
	}
	rt.hub.waiting = rt.hub.waiting[n:]
}

// expire drops events from an old backlog.
func (rt *Runtime) expire() {
	old := time.Now().Add(-rt.cfg.Profile.BacklogAge)
	young := slices.IndexFunc(rt.hub.waiting, func(ev *event) bool { return !ev.at.Before(old) })
	if young < 0 {
		young = len(rt.hub.waiting)
	}
	rt.lose(young)
}

// backlogBytes bounds the waiting events. An event of a crowded pod carries the statuses of all of
// its containers: a busy load that nobody subscribes to, or whose subscriber reads nothing, would
// fill gigabytes within minutes.
const backlogBytes = 256 << 20

// surplus is how many of the oldest of some events have to go, since all have too many bytes. The
// last is the newest event of all, and stays.
func (h *hub) surplus(events []*event) (n int) {
	for n < len(events)-1 && h.written-events[n].written+int64(len(events[n].wire)) > h.most {
		n++
	}
	return n
}

// shorten drops the oldest waiting events, if there are too many.
func (rt *Runtime) shorten() { rt.lose(rt.hub.surplus(rt.hub.waiting)) }

// subscribe adds a subscriber. A backlog belongs to the first subscriber.
func (rt *Runtime) subscribe() *subscriber {
	h := &rt.hub
	f := &rt.faults
	s := &subscriber{wake: make(chan struct{}, 1)}
	h.subSeq++
	live, _ := rt.live()
	if !live && rt.cfg.Profile.Delivery == DeliverBroadcast {
		rt.expire()
	}
	if rt.roll(rollReplay, f.Replay, "replay", h.subSeq) {
		s.replay(h.recent[:max(0, len(h.recent)-len(h.waiting))], cmp.Or(f.ReplayEvents, 100))
	}
	if !live && rt.cfg.Profile.Delivery == DeliverBroadcast {
		s.add(h.waiting...)
		h.waiting = nil
	}
	h.served = true
	h.subs = append(h.subs, s)
	rt.pump()
	return s
}

// take returns the next event for the subscriber, or nil.
func (rt *Runtime) take(s *subscriber) *event {
	if s.stalled || s.ended {
		return nil
	}
	if h := &rt.hub; len(s.queue) == 0 && len(h.waiting) > 0 && rt.cfg.Profile.Delivery == DeliverCompete {
		s.add(h.waiting[0])
		h.waiting = h.waiting[1:]
	}
	if len(s.queue) == 0 {
		return nil
	}
	ev := s.queue[0]
	s.queue = s.queue[1:]
	s.sending = true
	rt.pump()
	return ev
}

// forsake notes that a receiver of the event is through with it. An event that none received is
// lost.
func (rt *Runtime) forsake(ev *event) {
	ev.receivers--
	if ev.receivers == 0 && !ev.delivered {
		rt.settle(ev, Lost)
	}
}

// stall makes the subscriber take nothing and block nobody. Events in its queue, and in no other,
// are lost.
func (rt *Runtime) stall(s *subscriber) {
	s.stalled = true
	for _, ev := range s.queue {
		rt.forsake(ev)
	}
	s.queue = nil
	live, _ := rt.live()
	switch {
	case live:
		rt.pump()
	case rt.cfg.Profile.Delivery == DeliverBroadcast: // what callers hold becomes a backlog
		for _, ev := range rt.hub.waiting {
			ev.accept()
		}
	case rt.cfg.Profile.Delivery == DeliverSequential: // the runtime hands each event to nobody
		rt.lose(len(rt.hub.waiting))
	}
}

// leave removes a subscriber.
func (rt *Runtime) leave(s *subscriber) {
	if i := slices.Index(rt.hub.subs, s); i >= 0 {
		rt.hub.subs = slices.Delete(rt.hub.subs, i, i+1)
		rt.stall(s)
	}
}

// resetHub forgets everything, as a restart does. The old subscribers' goroutines find their
// streams broken.
func (rt *Runtime) resetHub() {
	h := &rt.hub
	rt.lose(len(h.waiting))
	for _, s := range h.subs {
		rt.stall(s)
	}
	h.subs = nil
	h.recent = nil
	h.served = false
}
