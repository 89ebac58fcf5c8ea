// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// zombie is the state of an ended process before its parent has waited.
const zombie = "Z"

// ancestors returns this process and its ancestors.
func ancestors(proc procfs.FS) []int {
	var pids []int
	for pid := os.Getpid(); pid > 0; {
		pids = append(pids, pid)
		p, err := proc.Proc(pid)
		if err != nil {
			break
		}
		stat, err := p.Stat()
		if err != nil {
			break
		}
		pid = stat.PPID
	}
	return pids
}

// unescape undoes the octal escapes of /proc/self/mountinfo.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if value, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(value))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// CPUTime returns the CPU time of a process's threads, in nanoseconds where /proc/PID/stat has
// hundredths of a second. Ended threads are not included.
func CPUTime(pid int) (time.Duration, error) {
	return cpuTime("/proc", pid)
}

func cpuTime(proc string, pid int) (time.Duration, error) {
	fs, err := procfs.NewFS(proc)
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
		if stat, err := p.Stat(); err == nil && stat.PPID == pid && stat.State != zombie {
			children = append(children, p.PID)
		}
	}
	return children
}
