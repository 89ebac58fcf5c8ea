// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"
	"sort"
	"time"
)

// scheduler runs functions at later times, in the order of their times and then of their
// scheduling, so that a history does not depend on the order of timers. A single timer serves all.
// The runtime's mutex guards it, and is held while a function runs.
type scheduler struct {
	rt        *Runtime
	tasks     []*task // in their order
	cancelled int     // of the tasks
	timer     *time.Timer
	stopped   bool
}

// task is a function to run; nil if it has run or was cancelled.
type task struct {
	at time.Time
	do func()
}

// cancel forgets the functions of some tasks, and what they hold. The empty tasks stay until their
// time, or until they are more than half of all: the cost of a cancellation does not grow with the
// number of tasks, nor their number with that of cancellations. A nil task is none.
func (s *scheduler) cancel(tasks ...*task) {
	for _, t := range tasks {
		if t != nil && t.do != nil {
			t.do = nil
			s.cancelled++
		}
	}
	if s.cancelled > len(s.tasks)/2 {
		s.tasks = slices.DeleteFunc(s.tasks, func(t *task) bool { return t.do == nil })
		s.cancelled = 0
	}
}

func (s *scheduler) after(d time.Duration, do func()) *task {
	if s.stopped {
		return nil
	}
	at := time.Now().Add(d)
	i := sort.Search(len(s.tasks), func(i int) bool { return s.tasks[i].at.After(at) })
	t := &task{at, do}
	s.tasks = slices.Insert(s.tasks, i, t)
	if i == 0 {
		s.arm()
	}
	return t
}

// arm sets the timer to the first task.
func (s *scheduler) arm() {
	switch {
	case len(s.tasks) == 0:
	case s.timer == nil:
		s.timer = time.AfterFunc(max(1, time.Until(s.tasks[0].at)), s.fire)
	default:
		s.timer.Reset(max(1, time.Until(s.tasks[0].at)))
	}
}

// fire runs on the timer's goroutine.
func (s *scheduler) fire() {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	s.arm()
}

// runDue runs due tasks. Their timer finds nothing left.
func (s *scheduler) runDue() {
	for len(s.tasks) > 0 && !s.tasks[0].at.After(time.Now()) {
		t := s.tasks[0]
		s.tasks[0] = nil // for the garbage collector
		s.tasks = s.tasks[1:]
		do := t.do
		if do == nil {
			s.cancelled--
			continue
		}
		t.do = nil
		do()
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
	s.cancelled = 0
	if s.timer != nil {
		s.timer.Stop()
	}
}
