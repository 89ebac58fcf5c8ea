// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Bounds of a queue. Without a fault in the way it is short, so that the runtime notices an idle
// client. Messages held by faults come on top.
const (
	maxReady = 2
	maxHeld  = 1 << 16
)

// An item is a reply on its way to the client.
type item struct {
	data []byte
	due  time.Time       // not before
	gate <-chan struct{} // not before its close; nil: no gate
	cut  *conn           // cut in the middle of this reply; nil: no cut
	seq  int             // order among equal due times
}

// A queue is the replies of a call, ordered by due and seq.
type queue struct {
	mu      sync.Mutex // owns the fields below
	items   []item
	lastDue time.Time // of the last ordered item
	seq     int
	window  struct { // of a Reorder: the number and the due time of its collected items
		size int
		due  time.Time
	}
	ended      bool
	err        error // of the end
	lost, sent bool  // a reply was dropped; a reply was sent

	change chan struct{} // closed and replaced at every change
}

func newQueue() *queue { return &queue{change: make(chan struct{})} }

// update calls f with the lock held, and wakes whoever waits.
func (q *queue) update(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	close(q.change)
	q.change = make(chan struct{})
}

// put queues a reply. Ordered replies are due no earlier than the last ordered reply.
func (q *queue) put(i item, reorder Reorder, ordered bool) {
	q.update(func() {
		now := time.Now()
		q.seq += 1 << 16
		i.seq = q.seq
		switch {
		case reorder.Window > 0:
			if q.window.size == 0 || now.After(q.window.due) {
				q.window.size, q.window.due = 0, now.Add(reorder.Within)
			}
			q.window.size++
			i.due = q.window.due
			i.seq -= q.window.size << 17 // before its predecessor
			if q.window.size == reorder.Window {
				for k := range q.items {
					if q.items[k].due.Equal(q.window.due) {
						q.items[k].due = now
					}
				}
				i.due, q.window.size = now, 0
			}
		case i.due.IsZero():
			i.due = now
			fallthrough
		case ordered:
			if i.due.Before(q.lastDue) {
				i.due = q.lastDue
			}
			q.lastDue = i.due
		}
		at, _ := slices.BinarySearchFunc(q.items, i, func(a, b item) int {
			return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq))
		})
		q.items = slices.Insert(q.items, at, i)
	})
}

// dropped records the loss of a reply.
func (q *queue) dropped() { q.update(func() { q.lost = true }) }

// end records the end of the replies and its cause.
func (q *queue) end(err error) { q.update(func() { q.ended, q.err = true, err }) }

// held reports whether a fault holds the item.
func (i item) held(now time.Time) bool {
	if i.due.After(now) {
		return true
	}
	select {
	case <-i.gate:
		return false
	default:
		return i.gate != nil
	}
}

// waitRoom blocks while enough is on its way.
func (q *queue) waitRoom(ctx context.Context) error {
	for {
		q.mu.Lock()
		n, change := len(q.items), q.change
		full := n >= maxHeld || n >= maxReady && !q.items[0].held(time.Now())
		q.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain sends the replies until their end, and returns the end's error.
func (q *queue) drain(ctx context.Context, send func([]byte) error) error {
	for {
		now := time.Now()
		var head item
		q.mu.Lock()
		change, queued := q.change, len(q.items) > 0
		if queued {
			head = q.items[0]
		}
		// Without its only reply, a call hangs.
		done := q.ended && (q.err != nil || !q.lost || q.sent)
		q.mu.Unlock()
		var due <-chan time.Time
		switch {
		case !queued && done:
			return q.err
		case queued && !head.held(now):
			q.update(func() { q.items, q.sent = q.items[1:], true })
			if head.cut != nil {
				head.cut.half.Store(true)
			}
			if err := send(head.data); err != nil {
				return err
			}
			continue
		case queued && head.due.After(now):
			due = time.After(head.due.Sub(now))
		}
		select {
		case <-change:
		case <-due:
		case <-head.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
