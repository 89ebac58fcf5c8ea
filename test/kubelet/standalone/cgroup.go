// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const cgroups = "/sys/fs/cgroup"

// cgroupDirs returns the folders of a cgroup in every hierarchy, none for the empty name.
func cgroupDirs(name string) []string {
	if name == "" {
		return nil
	}
	dirs, _ := filepath.Glob(filepath.Join(cgroups, "*", name)) // the pattern is well formed
	if _, err := os.Stat(filepath.Join(cgroups, name)); err == nil {
		dirs = append(dirs, filepath.Join(cgroups, name)) // version 2
	}
	return dirs
}

// MakeCgroup makes an empty cgroup of the name at the top of every hierarchy, fit for a kubelet's
// cgroupRoot. Package sweep of test/node removes it.
func MakeCgroup(name string) error {
	tops := []string{cgroups} // version 2
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err != nil {
		if tops, err = filepath.Glob(filepath.Join(cgroups, "*")); err != nil {
			return err
		}
	}
	for _, top := range tops {
		if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(top, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("standalone: cgroup: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // version 1 begins with none of them
			all, err := os.ReadFile(filepath.Join(top, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), all, 0o644); err != nil {
				return fmt.Errorf("standalone: cgroup: %w", err)
			}
		}
	}
	return nil
}
