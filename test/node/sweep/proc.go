// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
