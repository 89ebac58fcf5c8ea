// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

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

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every Linux
// that Go runs on.
const tick = 10 * time.Millisecond

// CPUTime returns the user and system time that a /proc/PID/stat line tells, in
// steps of 10 ms.
func CPUTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[max(0, strings.LastIndexByte(stat, ')')):])
	if len(fields) < 14 {
		return 0, fmt.Errorf("sweep: %q is not the stat line of a process", stat)
	}
	user, err1 := strconv.ParseInt(fields[12], 10, 64)
	system, err2 := strconv.ParseInt(fields[13], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
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
