// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Preflight returns why this machine cannot run a private container runtime, or nil: it checks for
// root, writable cgroups with the memory and pids controllers, and overlayfs.
func Preflight() error {
	return preflight(os.Geteuid(), DefaultCgroupFS, "/proc")
}

func preflight(euid int, cgroupfs, proc string) error {
	var errs []error
	if euid != 0 {
		errs = append(errs, fmt.Errorf("root is needed to run containers, and the user ID is %d; run as root", euid))
	}
	if missing := missingControllers(cgroupfs, "memory", "pids"); len(missing) > 0 {
		errs = append(errs, fmt.Errorf("the cgroup controllers %s are not at %s; mount the cgroup hierarchy there",
			strings.Join(missing, " and "), cgroupfs))
	} else if euid == 0 {
		errs = append(errs, writable(cgroupfs))
	}
	if known, err := os.ReadFile(filepath.Join(proc, "filesystems")); err != nil || !strings.Contains(string(known), "\toverlay\n") {
		errs = append(errs, errors.New("the kernel does not list overlayfs in /proc/filesystems; load it with `modprobe overlay`"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("this machine cannot run the node e2e tests:\n%w", err)
	}
	return nil
}

func missingControllers(cgroupfs string, want ...string) []string {
	text, err := os.ReadFile(filepath.Join(cgroupfs, "cgroup.controllers"))
	has := strings.Fields(string(text))
	return slices.DeleteFunc(want, func(controller string) bool {
		if err == nil {
			return slices.Contains(has, controller)
		}
		_, err := os.Stat(filepath.Join(cgroupfs, controller, "cgroup.procs"))
		return err == nil
	})
}

// writable makes and removes a cgroup, since a read-only mount or a missing capability shows only
// on trying.
func writable(cgroupfs string) error {
	probe, err := os.MkdirTemp(pidsOf(cgroupfs), "pe2e-probe-")
	if err != nil {
		return fmt.Errorf("no cgroup can be made under %s: %w", cgroupfs, err)
	}
	return os.Remove(probe)
}
