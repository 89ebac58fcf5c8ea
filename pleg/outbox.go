// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "github.com/evented-pleg/evented-pleg/cache"

// outbox feeds Watch without ever blocking. An event that finds the channel full is not lost: its
// pod is owed one PodSync, which takes the place of all events of that pod until it is delivered.
// It belongs to the loop.
type outbox struct {
	ch   chan Event
	owed map[cache.UID]Event // the PodSync of each pod owed one
	fifo []cache.UID         // the same pods, oldest debt first, from head on
	head int
}

func newOutbox(capacity int) outbox {
	return outbox{ch: make(chan Event, capacity), owed: make(map[cache.UID]Event)}
}

// put hands the event to Watch, or owes its pod a PodSync. It reports whether the event was owed.
func (o *outbox) put(e Event) bool {
	if _, ok := o.owed[e.Pod]; ok {
		return true
	}
	o.flush()
	if len(o.owed) == 0 {
		select {
		case o.ch <- e:
			return false
		default:
		}
	}
	e.Type, e.ID, e.ContainerName, e.Kind = PodSync, "", "", 0
	o.owed[e.Pod] = e
	o.fifo = append(o.fifo, e.Pod)
	return true
}

// flush delivers what is owed for which there is room.
func (o *outbox) flush() {
	for len(o.owed) > 0 {
		select {
		case o.ch <- o.next():
			o.delivered()
		default:
			return
		}
	}
}

// next returns the oldest PodSync owed. There must be one.
func (o *outbox) next() Event { return o.owed[o.fifo[o.head]] }

// delivered forgets the oldest debt.
func (o *outbox) delivered() {
	delete(o.owed, o.fifo[o.head])
	o.head++
	if o.head == len(o.fifo) {
		o.fifo, o.head = o.fifo[:0], 0
	} else if o.head > 1024 && o.head > len(o.fifo)/2 {
		o.fifo, o.head = append(o.fifo[:0], o.fifo[o.head:]...), 0
	}
}

// forgive gives up the oldest debts until at most n are left, and returns how many it gave up.
// Debts of pods for which keep is true are moved to the end instead.
func (o *outbox) forgive(n int, keep func(cache.UID) bool) int {
	given := 0
	for tries := len(o.owed); len(o.owed) > n && tries > 0; tries-- {
		uid := o.fifo[o.head]
		e := o.owed[uid]
		o.delivered()
		if keep(uid) {
			o.owed[uid] = e
			o.fifo = append(o.fifo, uid)
			continue
		}
		given++
	}
	return given
}
