// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// CPUTime returns the CPU time of a process's threads, in nanoseconds where /proc/PID/stat has
// hundredths of a second. Ended threads are not included.
func CPUTime(pid int) (sum time.Duration, err error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, fmt.Errorf("daemon: the CPU time of process %d: %w", pid, err)
	}
	for _, thread := range threads {
		spent, err := thread.Schedstat()
		if err != nil && !errors.Is(err, os.ErrNotExist) { // not ended meanwhile
			return 0, fmt.Errorf("daemon: the CPU time of process %d: %w", pid, err)
		}
		sum += time.Duration(spent.RunningNanoseconds)
	}
	return sum, nil
}

// CPU is CPU time by kind of process, with that of the ended processes that each has waited for,
// such as runc and what it executed.
type CPU struct {
	// Daemon is that of the runtime, Monitors that of its shims or monitors.
	Daemon, Monitors time.Duration
}

// CPUTime returns the CPU time of the runtime and of its shims or monitors.
func (d *Daemon) CPUTime() (spent CPU, err error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return CPU{}, fmt.Errorf("daemon: the CPU time of the runtime: %w", err)
	}
	for _, p := range all {
		args, err := p.CmdLine() // each names a file below the base
		if err != nil || !strings.Contains(strings.Join(args, " "), d.config.Base+"/") {
			continue // or ended meanwhile
		}
		own, err := CPUTime(p.PID)
		stat, missing := p.Stat()
		if err = errors.Join(err, missing); err != nil && !errors.Is(err, os.ErrNotExist) {
			return CPU{}, err
		}
		sum := own + time.Duration(stat.CUTime+stat.CSTime)*(time.Second/100)
		if p.PID == d.PID() {
			spent.Daemon += sum
		} else {
			spent.Monitors += sum
		}
	}
	return spent, nil
}
