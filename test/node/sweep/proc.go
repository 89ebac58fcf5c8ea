// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// stateOf returns the state letter of a /proc/PID/stat line. The command in
// parentheses may hold anything, so the state is looked for behind the last ')'.
func stateOf(stat string) byte {
	_, rest, ok := strings.Cut(stat[max(0, strings.LastIndexByte(stat, ')')):], ") ")
	if !ok || rest == "" {
		return 0
	}
	return rest[0]
}

// parentOf returns the parent's PID from a /proc/PID/stat line, or 0.
func parentOf(stat string) int {
	fields := strings.Fields(stat[max(0, strings.LastIndexByte(stat, ')')):])
	if len(fields) < 3 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[2])
	return pid
}

// ancestors returns this process and those above it.
func ancestors(proc string) []int {
	var pids []int
	for pid := os.Getpid(); pid > 0; {
		pids = append(pids, pid)
		stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
		if err != nil {
			break
		}
		pid = parentOf(string(stat))
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

// CPUTime returns the time that a process's threads have spent on a CPU, in
// nanoseconds where /proc/PID/stat has hundredths of a second. Threads that have
// ended are not in it.
func CPUTime(pid int) (time.Duration, error) {
	return cpuTime("/proc", pid)
}

func cpuTime(proc string, pid int) (time.Duration, error) {
	tasks := filepath.Join(proc, strconv.Itoa(pid), "task")
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return 0, fmt.Errorf("sweep: the CPU time of process %d: %w", pid, err)
	}
	var sum time.Duration
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(tasks, entry.Name(), "schedstat"))
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread ended meanwhile
		}
		if err != nil {
			return 0, fmt.Errorf("sweep: the CPU time of process %d: %w", pid, err)
		}
		onCPU, _, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
		nanoseconds, err := strconv.ParseInt(onCPU, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("sweep: the CPU time of process %d: %w", pid, err)
		}
		sum += time.Duration(nanoseconds)
	}
	return sum, nil
}

// Children returns the direct children of a process, zombies left out.
func Children(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var children []int
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err == nil && parentOf(string(stat)) == pid && stateOf(string(stat)) != 'Z' {
			children = append(children, child)
		}
	}
	return children
}
