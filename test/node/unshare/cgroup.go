// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package unshare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups is where the kernel's cgroup hierarchies are mounted: one for each controller with
// version 1, one with version 2.
const cgroups = "/sys/fs/cgroup"

// Unified reports whether the machine has the one hierarchy of version 2.
func Unified() bool {
	_, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	return err == nil
}

// Cgroups returns the folders of a cgroup in every hierarchy.
func Cgroups(name string) []string {
	pattern := filepath.Join(cgroups, "*", name)
	if Unified() {
		pattern = filepath.Join(cgroups, name)
	}
	dirs, _ := filepath.Glob(pattern) // the pattern is well formed
	// Symbolic links (cpu → cpu,cpuacct) are the same hierarchy.
	return slices.DeleteFunc(dirs, func(dir string) bool {
		real, err := filepath.EvalSymlinks(dir)
		return err != nil || real != dir
	})
}

// MakeCgroup makes an empty cgroup of the name in every hierarchy, fit for processes and for a
// kubelet's cgroupRoot. One that an ended run has left is removed first: with version 2 a cgroup
// takes no process while it has controllers for others below.
func MakeCgroup(name string) error {
	if err := removeCgroup(name); err != nil {
		return fmt.Errorf("unshare: a cgroup of an earlier run: %w", err)
	}
	for _, top := range Cgroups(".") {
		if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(top, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("unshare: a cgroup: %w", err)
		}
		if Unified() {
			delegate(top)
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // version 1 begins with none of them
			all, err := os.ReadFile(filepath.Join(top, file))
			if err != nil {
				continue
			}
			clone := os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0)
			if err := errors.Join(clone, os.WriteFile(filepath.Join(dir, file), all, 0)); err != nil {
				return fmt.Errorf("unshare: a cgroup: %w", err)
			}
		}
	}
	return nil
}

// delegate gives all controllers of a cgroup of version 2 to those below, as far as the kernel
// lets it: not while a process is in a cgroup other than the machine's root.
func delegate(top string) {
	controllers, _ := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
	for controller := range strings.FieldsSeq(string(controllers)) {
		_ = os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}

// EnterCgroup puts this process into the cgroup, and makes that the root of a cgroup namespace of
// the calling thread.
func EnterCgroup(name string) error {
	dirs := Cgroups(name)
	if len(dirs) == 0 {
		return fmt.Errorf("unshare: there is no cgroup %s", name)
	}
	join := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0) // 0 is the writer
	}
	for _, dir := range dirs {
		if err := join(dir); err != nil {
			return fmt.Errorf("unshare: enter the cgroup: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare: a cgroup namespace: %w", err)
	}
	if !Unified() {
		return nil
	}
	// With version 2 a cgroup with others below may hold no process itself.
	leaf := filepath.Join(dirs[0], "own")
	if err := errors.Join(os.Mkdir(leaf, 0o755), join(leaf)); err != nil {
		return fmt.Errorf("unshare: a cgroup for the run's own processes: %w", err)
	}
	return nil
}

// MoveTo puts another process into the cgroup. Its children of later are there too.
func MoveTo(name string, pid int) error {
	for _, dir := range Cgroups(name) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("unshare: move process %d to the cgroup %s: %w", pid, name, err)
		}
	}
	return nil
}

// MountCgroups mounts the hierarchies anew, with the root of the thread's cgroup namespace.
func MountCgroups() error {
	text, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return err
	}
	unified := strings.HasPrefix(string(text), "0::") // the only line, whatever is mounted
	_ = unix.Unmount(cgroups, unix.MNT_DETACH)        // those with another root, if there are any
	if unified {
		return unix.Mount("cgroup", cgroups, "cgroup2", 0, "")
	}
	if err := unix.Mount("tmpfs", cgroups, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("unshare: a folder for the cgroups: %w", err)
	}
	for line := range strings.Lines(string(text)) { // ID:CONTROLLERS:PATH
		options := strings.Split(line, ":")[1]
		kind := "cgroup"
		point := filepath.Join(cgroups, strings.TrimPrefix(options, "name="))
		switch {
		case options == "": // beside version 1
			kind = "cgroup2"
			point = filepath.Join(cgroups, "unified")
		case strings.HasPrefix(options, "name="):
			options = "none," + options
		}
		if err := errors.Join(os.Mkdir(point, 0o755), unix.Mount("cgroup", point, kind, 0, options)); err != nil {
			return fmt.Errorf("unshare: mount %s: %w", point, err)
		}
	}
	return nil
}

// removeCgroup removes a cgroup and those below it. One whose last process has just ended is busy
// for a moment.
func removeCgroup(name string) error {
	var err error
	for range 200 {
		if err = removeOnce(name); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

func removeOnce(name string) (err error) {
	for _, top := range Cgroups(name) {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if wrong := syscall.Rmdir(dir); wrong != nil && !errors.Is(wrong, syscall.ENOENT) {
				err = errors.Join(err, fmt.Errorf("remove the cgroup %s: %w", dir, wrong))
			}
		}
	}
	return err
}
