// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// DefaultCgroupFS is where the kernel's cgroup hierarchies are mounted.
const DefaultCgroupFS = "/sys/fs/cgroup"

// Cgroups lists the run's top cgroup in every hierarchy that has it: one for
// each controller with v1, one with v2.
func (t Target) Cgroups() []string {
	if t.Cgroup == "" {
		return nil
	}
	var found []string
	for _, hierarchy := range hierarchies(t.cgroupFS()) {
		dir := filepath.Join(hierarchy, t.Cgroup)
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			found = append(found, dir)
		}
	}
	return found
}

func (t Target) cgroupFS() string {
	if t.cgroupfs != "" {
		return t.cgroupfs
	}
	return DefaultCgroupFS
}

// hierarchies returns the roots of the cgroup hierarchies under a mount
// directory. Symbolic links (cpu → cpu,cpuacct) are one hierarchy, not two.
func hierarchies(root string) []string {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}
	}
	var roots []string
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			roots = append(roots, filepath.Join(root, entry.Name()))
		}
	}
	return roots
}

// removeCgroup removes a cgroup and those below it, children first. A cgroup
// whose last process has just been killed is busy for a moment.
func removeCgroup(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the cgroup %s: %w", top, err)
	}
	for _, dir := range slices.Backward(dirs) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("remove the cgroup %s: %w", dir, err)
		}
	}
	return nil
}
