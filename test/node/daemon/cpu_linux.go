// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
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
