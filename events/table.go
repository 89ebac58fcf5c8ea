// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/heap"
	"time"
)

// table holds every series that is known, the lists they wait in, and what is remembered of those that were forgotten. Guarded by the
// broadcaster's lock; it calls nothing that blocks.
type table struct {
	byKey   map[seriesKey]*series
	all     int // series in memory
	pending int // of these, never written
	objects map[objectKey]int
	urgent  seriesList // evicted ones: their final counts go first
	queue   seriesList // everything else that owes a call, in the order of emission
	aged    ageList    // stored series, the one with the oldest last occurrence first
	timers  timerHeap
	dormant dormants
}

func (t *table) init(maxDormant int) {
	t.byKey = map[seriesKey]*series{}
	t.objects = map[objectKey]int{}
	t.dormant = newDormants(maxDormant)
	t.aged.root.lnext, t.aged.root.lprev = &t.aged.root, &t.aged.root
}

// add takes a new series and makes it the current one of its key.
func (t *table) add(s *series) {
	s.heapIndex = -1
	s.current = true
	t.byKey[s.key] = s
	t.objects[s.object]++
	t.all++
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
	t.aged.remove(s)
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
	if t.objects[s.object]--; t.objects[s.object] <= 0 {
		delete(t.objects, s.object)
	}
	t.all--
}

// enqueue appends a series to the calls owed. It reports whether it was not there yet.
func (t *table) enqueue(s *series) bool {
	if s.queue != nil || s.inflight {
		return false
	}
	if s.st.closing == evicted {
		t.urgent.pushBack(s)
	} else {
		t.queue.pushBack(s)
	}
	return true
}

func (t *table) dequeue(s *series) {
	if s.queue != nil {
		s.queue.remove(s)
	}
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

// seriesList is a doubly linked list through qnext and qprev.
type seriesList struct {
	head, tail *series
	len        int
}

func (l *seriesList) pushBack(s *series) {
	s.queue, s.qprev, s.qnext = l, l.tail, nil
	if l.tail != nil {
		l.tail.qnext = s
	} else {
		l.head = s
	}
	l.tail = s
	l.len++
}

func (l *seriesList) pushFront(s *series) {
	s.queue, s.qprev, s.qnext = l, nil, l.head
	if l.head != nil {
		l.head.qprev = s
	} else {
		l.tail = s
	}
	l.head = s
	l.len++
}

func (l *seriesList) remove(s *series) {
	if s.qprev != nil {
		s.qprev.qnext = s.qnext
	} else {
		l.head = s.qnext
	}
	if s.qnext != nil {
		s.qnext.qprev = s.qprev
	} else {
		l.tail = s.qprev
	}
	s.queue, s.qnext, s.qprev = nil, nil, nil
	l.len--
}

// ageList is a ring through lnext and lprev around a sentinel, oldest first.
type ageList struct {
	root series
	len  int
}

func (l *ageList) touch(s *series) {
	if s.listed {
		if s.lnext == &l.root {
			return
		}
		s.lprev.lnext, s.lnext.lprev = s.lnext, s.lprev
		l.len--
	}
	s.listed = true
	s.lprev, s.lnext = l.root.lprev, &l.root
	s.lprev.lnext, s.lnext.lprev = s, s
	l.len++
}

func (l *ageList) remove(s *series) {
	if s.listed {
		s.lprev.lnext, s.lnext.lprev = s.lnext, s.lprev
		s.lnext, s.lprev, s.listed = nil, nil, false
		l.len--
	}
}

func (l *ageList) oldest() *series {
	if l.len == 0 {
		return nil
	}
	return l.root.lnext
}

// timerHeap orders series by their deadline. Occurrences do not move it: a deadline that comes too early is set again.
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
