// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// CPUTime returns the CPU time of a process's threads, in nanoseconds where /proc/PID/stat has
// hundredths of a second. Ended threads are not included.
func CPUTime(pid int) (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	threads, err := fs.AllThreads(pid)
	if err != nil {
		return 0, fmt.Errorf("sweep: the CPU time of process %d: %w", pid, err)
	}
	var sum time.Duration
	for _, thread := range threads {
		spent, err := thread.Schedstat()
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread ended meanwhile
		}
		if err != nil {
			return 0, fmt.Errorf("sweep: the CPU time of process %d: %w", pid, err)
		}
		sum += time.Duration(spent.RunningNanoseconds)
	}
	return sum, nil
}

// children returns the direct children of a process, zombies left out.
func children(pid int) []int {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	var children []int
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == pid && stat.State != "Z" {
			children = append(children, p.PID)
		}
	}
	return children
}
