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
	neighbours[ticket]
}

// line is a list of tickets in order: those of a lane, or of an object.
type line struct {
	chain[ticket, *ticket]
	lane   *lane   // of the line, or nil
	object *object // likewise
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
	l.put(t, after)
}

func (l *line) remove(t *ticket) {
	t.in = nil
	l.chain.remove(t)
}
