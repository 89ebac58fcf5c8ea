// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"sort"
	"time"
)

// hub is the log of events between the runtime and its subscribers. There is no goroutine in it: a
// subscriber's own goroutine pulls from the log, as far as the profile's channels would have let
// the event through. The runtime's mutex guards it.
//
// For DeliverBroadcast and DeliverSequential the log is a sequence with a cursor per subscriber.
// limit is the first event without room in the channel of the slowest subscriber: it and all later
// events are still in the hands of blocked callers, and no subscriber can see them. For
// DeliverCompete the log is a queue that subscribers pop from.
type hub struct {
	log    []*event
	head   uint64 // seq of log[0]
	limit  uint64
	subs   []*subscriber
	subSeq uint64
	served bool // somebody has subscribed since the runtime started
	recent []*event
}

func (h *hub) tail() uint64 { return h.head + uint64(len(h.log)) }

// live are the counting subscribers: a stalled subscriber takes nothing and blocks nobody.
func (h *hub) live() int {
	n := 0
	for _, s := range h.subs {
		if !s.stalled {
			n++
		}
	}
	return n
}

func (h *hub) pokeAll() {
	for _, s := range h.subs {
		s.poke()
	}
}

// publish puts an event into the log, or discards the event by the profile's rules.
func (rt *Runtime) publish(ev *event) Emission {
	if !rt.tells() {
		return NoEvent
	}
	h, p := &rt.hub, &rt.cfg.Profile
	ev.at = time.Now()
	discard := false
	live := h.live()
	switch p.Delivery {
	case DeliverBroadcast:
		if live == 0 {
			rt.expire()
			if len(h.subs) > 0 { // only stalled subscribers: they swallow it
				discard = true
			}
		}
	case DeliverSequential:
		discard = len(h.log) >= p.Queue || live == 0 && h.served
	case DeliverCompete:
		discard = len(h.log) >= p.Queue
	}
	if discard {
		rt.counts.Discarded++
		ev.accepted = true
		return Discarded
	}
	rt.counts.Emitted++
	ev.seq = h.tail()
	h.log = append(h.log, ev)
	h.remember(ev)
	ev.accepted = p.Delivery == DeliverCompete
	rt.advance()
	if !ev.accepted {
		ev.stuck = true
		rt.blocked.Events++
		rt.blocked.Now++
	}
	h.pokeAll()
	return Emitted
}

// remember keeps the newest events for replays.
func (h *hub) remember(ev *event) {
	const keep = 256
	if len(h.recent) >= keep {
		h.recent = append(h.recent[:0], h.recent[keep/2:]...)
	}
	h.recent = append(h.recent, ev)
}

// advance recomputes limit, releases callers with room for their event, and trims events taken by
// all.
func (rt *Runtime) advance() {
	h, p := &rt.hub, &rt.cfg.Profile
	if p.Delivery == DeliverCompete {
		return // nobody is ever blocked, and take trims
	}
	limit, taken := h.tail(), h.tail()
	any := false
	for _, s := range h.subs {
		if s.stalled {
			continue
		}
		any = true
		taken = min(taken, s.next)
		if p.Delivery == DeliverBroadcast {
			limit = min(limit, s.next+uint64(p.Slots))
		} else {
			limit = min(limit, s.done+1)
		}
	}
	moved := limit > h.limit
	h.limit = max(h.limit, limit)
	for seq := max(h.head, rt.acceptedUpTo()); seq < h.tail(); seq++ {
		ev := h.log[seq-h.head]
		if p.Delivery == DeliverBroadcast && seq >= h.limit {
			break
		}
		rt.accept(ev)
	}
	if moved {
		h.pokeAll()
	}
	if any {
		rt.trim(taken)
	}
}

// acceptedUpTo finds the first event in the log without room in a channel.
func (rt *Runtime) acceptedUpTo() uint64 {
	h := &rt.hub
	return h.head + uint64(sort.Search(len(h.log), func(i int) bool { return !h.log[i].accepted }))
}

func (rt *Runtime) accept(ev *event) {
	if ev.accepted {
		return
	}
	ev.accepted = true
	if ev.stuck {
		rt.blocked.Now--
	}
	if ev.waiting != nil {
		close(ev.waiting)
		ev.waiting = nil
	}
}

// trim drops the events before seq from the log.
func (rt *Runtime) trim(seq uint64) {
	h := &rt.hub
	for h.head < seq && len(h.log) > 0 {
		ev := h.log[0]
		h.log[0] = nil
		h.log = h.log[1:]
		h.head++
		rt.accept(ev)
		rt.concluded(ev)
	}
	if len(h.log) == 0 {
		h.log = nil
	}
}

// concluded notes the loss of an event that left the log without a receiver.
func (rt *Runtime) concluded(ev *event) {
	if ev.inFlight == 0 && ev.delivered == 0 && ev.how != Lost {
		rt.counts.Lost++
		rt.settle(ev, Lost)
	}
}

// expire drops events from an old backlog.
func (rt *Runtime) expire() {
	h := &rt.hub
	old := time.Now().Add(-rt.cfg.Profile.BacklogAge)
	seq := h.head
	for seq < h.tail() && h.log[seq-h.head].at.Before(old) {
		seq++
		rt.counts.Expired++
	}
	rt.trim(seq)
	h.limit = max(h.limit, h.head)
}
