// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"container/heap"
	"iter"
	"slices"
)

// fifo is a queue over a slice.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }
func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) front() (v T, ok bool) {
	if q.head == len(q.items) {
		return v, false
	}
	return q.items[q.head], true
}

// all yields what is in the queue, the front first.
func (q *fifo[T]) all() iter.Seq[T] { return slices.Values(q.items[q.head:]) }

// pop removes the front, which must exist.
func (q *fifo[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}

// laterEntry is a pod that is looked at again at a time. An entry whose pod has been rescheduled is
// stale and ignored.
type laterEntry struct {
	at  instant
	pod *pod
}

// laterHeap orders entries by time.
type laterHeap []laterEntry

var _ heap.Interface = (*laterHeap)(nil)

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h laterHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push appends an entry; use heap.Push.
func (h *laterHeap) Push(v any) { *h = append(*h, v.(laterEntry)) }

// Pop removes the last entry; use heap.Pop.
func (h *laterHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	old[len(old)-1] = laterEntry{}
	*h = old[:len(old)-1]
	return v
}
