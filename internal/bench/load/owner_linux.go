// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// processName names this process among all processes of the machine: by the machine's boot, the
// namespace of the process ID, the ID, and the start of the process, because IDs are reused. It is
// empty without /proc.
var processName = sync.OnceValue(func() string {
	place, err := processPlace()
	self, selfErr := ProcessStat(os.Getpid())
	if err != nil || selfErr != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", place, self.PID, self.Starttime)
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

// ProcessStat returns what the kernel counts of a process.
func ProcessStat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
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
	stat, err := ProcessStat(pid)
	switch {
	case errors.Is(unix.Kill(pid, 0), unix.ESRCH):
		return OwnerEnded
	case err == nil && (fmt.Sprint(stat.Starttime) != fields[3] || stat.State == "Z" || stat.State == "X"):
		return OwnerEnded // another process has the ID now, or this process is a zombie
	}
	return OwnerLives
}
