// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
)

// cost is the resources used by this process.
type cost struct {
	wall time.Duration
	// cpu is user and system time of all threads.
	cpu time.Duration
	// bytes and objects are the allocations, freed since or not.
	bytes, objects int64
	// wakeups are the times that a thread of the process gave up the processor of its own accord:
	// how often something woke it.
	wakeups int64
}

// used returns the resources used so far.
func used() cost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return cost{
		wall: time.Duration(time.Now().UnixNano()), cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		bytes: int64(m.TotalAlloc), objects: int64(m.Mallocs), wakeups: u.Nvcsw,
	}
}

// since returns the resources used since an earlier reading.
func (c cost) since() cost {
	now := used()
	return cost{
		wall: now.wall - c.wall, cpu: now.cpu - c.cpu,
		bytes: now.bytes - c.bytes, objects: now.objects - c.objects, wakeups: now.wakeups - c.wakeups,
	}
}

// Usage returns this process's CPU time.
func Usage() time.Duration { return used().cpu }

// live returns the bytes of the live heap. Pools outlive a collection, so there are several.
func live() int64 {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Growth returns the bytes by which f makes the live heap grow. The result of f is kept until
// measured.
func Growth(f func() (any, error)) (int64, error) {
	before := live()
	kept, err := f()
	after := live()
	runtime.KeepAlive(kept)
	return after - before, err
}

// quantile returns the smallest of the values not exceeded by a share q of them.
func quantile(values []int64, q float64) float64 {
	slices.Sort(values)
	return float64(values[min(int(math.Ceil(q*float64(len(values))))-1, len(values)-1)])
}
