// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"runtime"
	"syscall"
	"time"
)

// origin ties the monotonic clock of this process to the wall clock once.
var origin = time.Now()

// Stamp turns a time of this process into nanoseconds on the monotonic clock, comparable with those
// of the other processes of a run, so steps of the wall clock do not show. A time without a
// monotonic reading is taken by the wall clock.
func Stamp(t time.Time) int64 { return origin.UnixNano() + int64(t.Sub(origin)) }

// Now is Stamp(time.Now()).
func Now() int64 { return Stamp(time.Now()) }

// Sleep waits, or returns the cause of ctx's end. A duration of 0 or less does not wait.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Usage is the resource usage of a process.
type Usage struct {
	CPUSeconds float64
	// MaxRSS is the largest resident size so far, in bytes.
	MaxRSS int64
}

// OwnUsage returns this process's usage so far.
func OwnUsage() Usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Usage{}
	}
	rss := int64(r.Maxrss)
	if runtime.GOOS != "darwin" { // kilobytes everywhere else
		rss *= 1024
	}
	cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return Usage{CPUSeconds: cpu.Seconds(), MaxRSS: rss}
}
