// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// processName names this process among all processes of the machine: by the machine's boot, the
// namespace of the process ID, the ID, and the start of the process, because IDs are reused. It is
// empty without /proc.
var processName = sync.OnceValue(func() string {
	place, err := processPlace()
	_, begin, beginErr := processBegin(os.Getpid())
	if err != nil || beginErr != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %s", place, os.Getpid(), begin)
})

// processPlace names the machine's boot and the namespace of process IDs.
func processPlace() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(boot)) + " " + namespace, err
}

// processBegin returns the state of a process, such as S or Z, and its start, in ticks since the
// boot.
func processBegin(pid int) (state, begin string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	const beginAt = 19 // of the fields after the name, which may hold spaces and brackets
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= beginAt {
		return "", "", errors.New("/proc tells nothing of the process")
	}
	return fields[0], fields[beginAt], nil
}

// ownerOf reports whether the named process lives.
func ownerOf(name string) Owner {
	fields := strings.Fields(name)
	place, err := processPlace()
	if err != nil || len(fields) != 4 {
		return OwnerUnknown
	}
	here := strings.Fields(place)
	if fields[0] != here[0] {
		return OwnerEnded // the machine was started again since
	}
	pid, err := strconv.Atoi(fields[2])
	if fields[1] != here[1] || err != nil || pid <= 0 {
		return OwnerUnknown
	}
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return OwnerEnded
	}
	state, begin, err := processBegin(pid)
	if err == nil && (begin != fields[3] || state == "Z" || state == "X") {
		return OwnerEnded // another process has the ID now, or this process is a zombie
	}
	return OwnerLives
}
