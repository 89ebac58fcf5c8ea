// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "container/heap"

// agenda has things to do at a time, the earliest first. Nothing is taken from its middle: its
// owner knows the present time of each thing, and an entry of another time is stale.
type agenda[T any] []agendaEntry[T]

// agendaEntry is a thing to do at a time.
type agendaEntry[T any] struct {
	at instant `prove:"timers,scarce:begins"`
	of T
}

// enter adds a thing.
func (a *agenda[T]) enter(at instant, of T) {
	heap.Push(a, agendaEntry[T]{at, of})
}

// next returns the time of the first entry, stale or not; never if there is none.
func (a agenda[T]) next() instant {
	if len(a) == 0 {
		return never
	}
	return a[0].at
}

// take removes the first entry, which must exist.
func (a *agenda[T]) take() agendaEntry[T] {
	return heap.Pop(a).(agendaEntry[T])
}

var _ heap.Interface = (*agenda[int])(nil)

func (a agenda[T]) Len() int { return len(a) }
func (a agenda[T]) Less(i, j int) bool {
	return a[i].at < a[j].at
}
func (a agenda[T]) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
}

// Push appends an entry; use heap.Push.
func (a *agenda[T]) Push(v any) {
	*a = append(*a, v.(agendaEntry[T]))
}

// Pop removes the last entry; use heap.Pop.
func (a *agenda[T]) Pop() any {
	old := *a
	v := old[len(old)-1]
	old[len(old)-1] = agendaEntry[T]{}
	*a = old[:len(old)-1]
	return v
}
