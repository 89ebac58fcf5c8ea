// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import "container/heap"

// indexed is a heap with items that know their index.
type indexed[T any] struct {
	items []T
	less  func(a, b T) bool
	// index returns where an item keeps its index, -1 outside of the heap.
	index func(T) *int
}

// set brings an item to its place in the heap, or takes it out.
func (h *indexed[T]) set(item T, in bool) {
	at := *h.index(item)
	switch {
	case in && at >= 0:
		heap.Fix(h, at)
	case in:
		heap.Push(h, item)
	case at >= 0:
		heap.Remove(h, at)
	}
}

// Len implements heap.Interface.
func (h *indexed[T]) Len() int { return len(h.items) }

// Less implements heap.Interface.
func (h *indexed[T]) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

// Swap implements heap.Interface.
func (h *indexed[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.index(h.items[i]) = i
	*h.index(h.items[j]) = j
}

// Push implements heap.Interface.
func (h *indexed[T]) Push(x any) {
	*h.index(x.(T)) = len(h.items)
	h.items = append(h.items, x.(T))
}

// Pop implements heap.Interface.
func (h *indexed[T]) Pop() any {
	var none T
	last := len(h.items) - 1
	item := h.items[last]
	h.items[last] = none
	h.items = h.items[:last]
	*h.index(item) = -1
	return item
}
