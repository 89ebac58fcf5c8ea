// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/heap"
	"container/list"
	"time"

	"k8s.io/utils/lru"
)

// table holds every series that is known, the lists they wait in, and what is remembered of those
// that were evicted. Guarded by the broadcaster's lock; it calls nothing that blocks.
type table struct {
	byKey   map[seriesKey]*series
	all     int // series in memory
	pending int // of these, never written
	pairs   map[pairKey]int
	notes   map[seriesKey]int // live series that differ in the note only, by seriesKey.notes
	urgent  *list.List        // of *series: evicted ones; their final counts go first
	queue   *list.List        // of *series: everything else that owes a call, in the order of emission
	aged    *list.List        // of *series: stored ones, the one with the oldest last occurrence first
	timers  timerHeap
	dormant *lru.Cache // seriesID → dormant
}

// dormant is how far an evicted series had come: enough to continue it.
type dormant struct {
	st   state
	name string
}

func (t *table) init(maxDormant int) {
	*t = table{
		byKey: map[seriesKey]*series{}, pairs: map[pairKey]int{}, notes: map[seriesKey]int{},
		urgent: list.New(), queue: list.New(), aged: list.New(), dormant: lru.New(maxDormant),
	}
}

// count books that a series came into memory (+1) or left it (-1).
func (t *table) count(s *series, n int) {
	t.all += n
	bump(t.pairs, s.key.pair(), n)
	if s.key.note != "" {
		bump(t.notes, s.key.notes(), n)
	}
}

func bump[K comparable](m map[K]int, k K, n int) {
	if m[k] += n; m[k] == 0 {
		delete(m, k)
	}
}

// add takes a new series and makes it the current one of its key.
func (t *table) add(s *series) {
	s.heapIndex = -1
	s.current = true
	t.byKey[s.key] = s
	t.count(s, 1)
	if s.st.phase == settling {
		s.waiting = true
		t.pending++
	}
}

// retire takes a series out of reach of its key; it may still owe calls.
func (t *table) retire(s *series) {
	if s.current {
		s.current = false
		delete(t.byKey, s.key)
	}
	t.unlist(s)
}

// written notes that the series has left the settling phase.
func (t *table) written(s *series) {
	if s.waiting {
		s.waiting = false
		t.pending--
	}
}

// forget drops a series for good.
func (t *table) forget(s *series) {
	t.retire(s)
	t.written(s)
	t.dequeue(s)
	t.schedule(s, time.Time{})
	t.count(s, -1)
}

// listOf is the list in which a series waits for its call.
func (t *table) listOf(s *series) *list.List {
	if s.st.closing == evicted {
		return t.urgent
	}
	return t.queue
}

// enqueue appends a series to the calls owed, or puts it before all others. It reports whether it
// was not there yet.
func (t *table) enqueue(s *series, first bool) bool {
	if s.waits != nil || s.inflight {
		return false
	}
	s.in = t.listOf(s)
	if first {
		s.waits = s.in.PushFront(s)
	} else {
		s.waits = s.in.PushBack(s)
	}
	return true
}

func (t *table) dequeue(s *series) {
	if s.waits != nil {
		s.in.Remove(s.waits)
		s.in, s.waits = nil, nil
	}
}

// touch makes a stored series the one with the latest occurrence.
func (t *table) touch(s *series) {
	if s.age == nil {
		s.age = t.aged.PushBack(s)
	} else {
		t.aged.MoveToBack(s.age)
	}
}

func (t *table) unlist(s *series) {
	if s.age != nil {
		t.aged.Remove(s.age)
		s.age = nil
	}
}

// oldest is the stored series whose last occurrence is the longest ago, nil for none.
func (t *table) oldest() *series {
	if e := t.aged.Front(); e != nil {
		return e.Value.(*series)
	}
	return nil
}

// schedule sets the deadline of a series; zero for none.
func (t *table) schedule(s *series, at time.Time) {
	switch {
	case at.IsZero():
		if s.heapIndex >= 0 {
			heap.Remove(&t.timers, s.heapIndex)
		}
	case s.heapIndex < 0:
		s.wake = at
		heap.Push(&t.timers, s)
	case !s.wake.Equal(at):
		s.wake = at
		heap.Fix(&t.timers, s.heapIndex)
	}
}

// timerHeap orders series by their deadline. Occurrences do not move it: a deadline that comes too
// early is set again.
type timerHeap []*series

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].wake.Before(h[j].wake) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

// Push and Pop are heap.Interface.
func (h *timerHeap) Push(x any) {
	s := x.(*series)
	s.heapIndex = len(*h)
	*h = append(*h, s)
}

func (h *timerHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.heapIndex = -1
	return s
}
