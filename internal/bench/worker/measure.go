// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// measureTimeout bounds a call that measures.
const measureTimeout = 2 * time.Minute

// Cost is the resources used by a process so far.
type Cost struct {
	// CPU is user and system time of all threads.
	Wall, CPU time.Duration
	// Bytes and Objects are the allocations, freed since or not.
	Bytes, Objects int64
	// Wakeups are the times that a thread gave up the processor of its own accord.
	Wakeups int64
}

// Memory is the live heap in bytes, and the part of a set of the statuses of all pods.
type Memory struct{ Heap, Statuses int64 }

// Used returns the cost of this process, after a collection if collect.
func (s *Server) Used(collect bool, c *Cost) error {
	if collect {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	*c = Cost{
		Wall:    time.Duration(time.Now().UnixNano()),
		CPU:     time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		Bytes:   int64(m.TotalAlloc),
		Objects: int64(m.Mallocs),
		Wakeups: u.Nvcsw,
	}
	return err
}

// Relists lists the runtime so many times, and returns once the lists are applied. The generator's
// first list counts as one.
func (s *Server) Relists(n int, _ *bool) error {
	for range n {
		begun := time.Now()
		limit := begun.Add(measureTimeout)
		if s.subject.cache.Global().IsZero() {
			begun = time.Time{}
		} else {
			s.subject.generator.RequestRelist("")
		}
		select {
		case <-s.subject.listed:
		case <-time.After(time.Until(limit)):
		}
		// The global time moves once every changed pod was inspected, too.
		for pause := 20 * time.Microsecond; !s.subject.cache.Global().After(begun); pause = min(2*pause, time.Millisecond) {
			if time.Now().After(limit) {
				return errors.New("worker: the list was not applied in time")
			}
			time.Sleep(pause)
		}
	}
	return nil
}

// Await waits until the first list was applied and the stream is up, or until the generator has
// taken in so many claims. It returns their number.
func (s *Server) Await(claims int, taken *int) error {
	for begun := time.Now(); time.Since(begun) < measureTimeout; time.Sleep(2 * time.Millisecond) {
		stats := s.subject.generator.Stats()
		ready := !s.subject.cache.Global().IsZero() && stats.DirtyPods == 0 &&
			(s.subject.config.Mode != Evented || stats.State == pleg.StreamConnected && stats.Relists > 1)
		*taken = stats.Claims
		if claims > 0 && *taken >= claims || claims == 0 && ready {
			return nil
		}
	}
	return errors.New("worker: the first list, the stream or the claims did not come in time")
}

// Memory measures the live heap, and by how much another set of the statuses makes it grow.
func (s *Server) Memory(_ bool, m *Memory) error {
	ctx := context.Background()
	s.news() // no longer kept: the memory of an answer with the news would be counted
	m.Heap = live()
	listing, err := s.subject.client.List(ctx, 0)
	if err != nil {
		return err
	}
	before := live()
	all := make([]*cri.PodStatus, 0, len(listing.Pods))
	for _, p := range listing.Pods {
		status, err := s.whole(ctx, p)
		if err != nil {
			return err
		}
		all = append(all, status)
	}
	m.Statuses = live() - before
	runtime.KeepAlive(all)
	runtime.KeepAlive(&listing)
	return nil
}

// whole reads the statuses of a pod until none is missing, as a generator does: the client gives up
// a status that comes long after the others of the pod, which happens on a crowded machine, and
// a runtime's failure passes. The error is that of the last read.
func (s *Server) whole(ctx context.Context, pod pleg.Pod) (*cri.PodStatus, error) {
	ctx, cancel := s.meter.WithTimeout(ctx, measureTimeout)
	defer cancel()
	for {
		in, err := s.subject.client.Inspect(ctx, pod)
		if err == nil {
			return in.Status, nil
		}
		if bench.Sleep(ctx, 20*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// live returns the bytes of the live heap. Pools outlive a collection, so there are several.
func live() int64 {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// watched is metrics that report finished lists.
type watched struct {
	pleg.Metrics
	listed chan<- struct{}
}

// Add implements [pleg.Metrics].
func (w watched) Add(name string, n int) {
	w.Metrics.Add(name, n)
	if name == pleg.MetricRelists {
		select {
		case w.listed <- struct{}{}:
		default:
		}
	}
}
