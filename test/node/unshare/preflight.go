// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package unshare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// preflight returns why this machine cannot run a private container runtime, or nil: that needs
// root, cgroups with the memory and pids controllers, and overlayfs.
func preflight(euid int, cgroups, proc string) error {
	var errs []error
	if euid != 0 {
		errs = append(errs, fmt.Errorf("root is needed to run containers, and the user ID is %d; run as root", euid))
	}
	unified, err := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers"))
	for _, controller := range []string{"memory", "pids"} {
		_, missing := os.Stat(filepath.Join(cgroups, controller, "cgroup.procs"))
		if missing != nil && (err != nil || !slices.Contains(strings.Fields(string(unified)), controller)) {
			errs = append(errs, fmt.Errorf("the cgroup controller %s is not at %s; mount the cgroup hierarchy there", controller, cgroups))
		}
	}
	if known, err := os.ReadFile(filepath.Join(proc, "filesystems")); err != nil || !strings.Contains(string(known), "\toverlay\n") {
		errs = append(errs, errors.New("the kernel does not list overlayfs in /proc/filesystems; load it with `modprobe overlay`"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("this machine cannot run these tests:\n%w", err)
	}
	return nil
}
