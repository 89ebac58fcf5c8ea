// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"container/heap"
	"time"
)

// scheduler runs functions at later times, in the order of their times and then of their
// scheduling, so that a history does not depend on the order of timers. A single timer serves all.
// The runtime's mutex guards it, and is held while a function runs.
type scheduler struct {
	rt      *Runtime
	tasks   taskHeap
	seq     uint64
	timer   *time.Timer
	at      time.Time // when the timer fires; zero: not armed
	stopped bool
}

// task is a function to run. place is its index in the heap, -1 when absent.
type task struct {
	at    time.Time
	seq   uint64
	fn    func()
	place int
}

func (s *scheduler) after(d time.Duration, fn func()) *task {
	if s.stopped {
		return &task{place: -1}
	}
	s.seq++
	t := &task{at: time.Now().Add(d), seq: s.seq, fn: fn}
	heap.Push(&s.tasks, t)
	s.arm()
	return t
}

// arm sets the timer to the first task.
func (s *scheduler) arm() {
	if s.stopped || len(s.tasks) == 0 {
		return
	}
	first := s.tasks[0].at
	if !s.at.IsZero() && !first.Before(s.at) {
		return
	}
	s.at = first
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(first), s.fire)
	} else {
		s.timer.Reset(time.Until(first))
	}
}

// fire runs on the timer's goroutine.
func (s *scheduler) fire() {
	s.rt.mu.Lock()
	defer s.rt.mu.Unlock()
	s.at = time.Time{}
	s.runDue()
	s.arm()
}

// runDue runs due tasks. Their timer finds nothing left.
func (s *scheduler) runDue() {
	for len(s.tasks) > 0 && !s.tasks[0].at.After(time.Now()) {
		heap.Pop(&s.tasks).(*task).fn()
	}
}

// cancel takes a task back before its run; nil is no task.
func (s *scheduler) cancel(t *task) {
	if t != nil && t.place >= 0 && t.place < len(s.tasks) && s.tasks[t.place] == t {
		heap.Remove(&s.tasks, t.place)
	}
}

// lock takes the runtime's mutex and first runs due tasks: a caller at the very moment of a task
// (common in virtual time) finds the task done, in any order of goroutines.
func (rt *Runtime) lock() {
	rt.mu.Lock()
	rt.sched.runDue()
}

func (s *scheduler) stop() {
	s.stopped = true
	s.tasks = nil
	if s.timer != nil {
		s.timer.Stop()
	}
}

type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.place = len(*h)
	*h = append(*h, t)
}
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.place = -1
	return t
}
