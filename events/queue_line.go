// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

// caller is the owner of a ticket.
type caller interface{ place() place }

// ticket is a call that waits.
type ticket struct {
	owner caller
	seq   int64 // the order
	tried int64 // the turn in which the ticket last tried a failing scope, 0 for none
	in    *line // nil while not waiting

	prev, next *ticket
}

// line is a list of tickets in order: those of a lane, or of an object.
type line struct {
	first, last *ticket
	n           int
	lane        *lane   // of the line, or nil
	object      *object // likewise
}

func (l *line) insert(t *ticket) {
	after := l.last
	switch {
	case l.first != nil && t.seq < l.first.seq:
		after = nil
	case after != nil && t.seq < after.seq: // tickets that return are among the first
		after = l.first
		for after.next.seq < t.seq {
			after = after.next
		}
	}
	t.in = l
	t.prev = after
	if after == nil {
		t.next = l.first
		l.first = t
	} else {
		t.next = after.next
		after.next = t
	}
	if t.next == nil {
		l.last = t
	} else {
		t.next.prev = t
	}
	l.n++
}

func (l *line) remove(t *ticket) {
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.in, t.prev, t.next = nil, nil, nil
	l.n--
}
