// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
)

// fifo is a queue over a slice: first in, first out. The zero fifo is empty.
type fifo[T any] struct {
	items []T // the queue from head on, front first
	head  int // index of the front; len(items) if the queue is empty
}

func (q *fifo[T]) push(v T) {
	q.items = append(q.items, v)
}
func (q *fifo[T]) len() int {
	return len(q.items) - q.head
}

// front returns the first entry, if there is one.
func (q *fifo[T]) front() (v T, ok bool) {
	if q.head == len(q.items) {
		return v, false
	}
	return q.items[q.head], true
}

// keep removes all other entries.
func (q *fifo[T]) keep(kept func(T) bool) {
	rest := slices.DeleteFunc(q.items[q.head:], func(v T) bool { return !kept(v) })
	q.items = q.items[:q.head+len(rest)]
}

// pop removes and returns the front, which must exist.
func (q *fifo[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	switch {
	case q.head == len(q.items):
		q.items = q.items[:0]
		q.head = 0
	case q.head > 1024 && q.head > len(q.items)/2:
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items = q.items[:n]
		q.head = 0
	}
	return v
}
