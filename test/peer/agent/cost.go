// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"runtime"
	"syscall"
	"time"
)

// Cost is the resources used by the process.
type Cost struct {
	Wall time.Duration `json:"wall"`
	// CPU is user and system time of all threads.
	CPU time.Duration `json:"cpu"`
	// Bytes and Objects are the allocations, freed since or not.
	Bytes   int64 `json:"bytes"`
	Objects int64 `json:"objects"`
	// Wakeups are the times that a thread of the process gave up the processor of its own accord:
	// how often something woke it.
	Wakeups int64 `json:"wakeups"`
}

// reading is the meters of this process at a moment.
type reading struct {
	at      time.Time
	cpu     time.Duration
	bytes   uint64
	objects uint64
	sleeps  int64
}

func read() reading {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return reading{
		at: time.Now(), cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		bytes: m.TotalAlloc, objects: m.Mallocs, sleeps: int64(u.Nvcsw),
	}
}

func (r reading) until(now reading) Cost {
	return Cost{
		Wall: now.at.Sub(r.at), CPU: now.cpu - r.cpu, Bytes: int64(now.bytes - r.bytes), Objects: int64(now.objects - r.objects),
		Wakeups: now.sleeps - r.sleeps,
	}
}

// Usage returns this process's CPU time.
func Usage() time.Duration { return read().cpu }
