// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bench

import (
	"runtime"
	"syscall"
	"time"
)

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
