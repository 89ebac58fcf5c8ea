// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package sweep finds and removes a test run's leftovers on the machine.
//
// # Model
//
// A run owns a directory and a cgroup name, both unique, and these two identify everything it
// started: a process sits in the cgroup, where [Target.Enter] and [Target.Join] put the run's
// processes and every descendant stays, or in the cgroup of a container known by its ID to runc,
// with its state in the directory; a mount lies under the directory; a socket is a file in the
// directory. So a sweep needs no memory of the run, works after any kind of end, and can be done by
// another process.
//
// A process that only names the directory, in its command line or as its working directory, is
// foreign: the editor of a log, the client on the socket. Nothing outside the directory and the
// cgroups is touched.
//
// # Concurrency
//
// A Target holds no state. Two concurrent sweeps of a target are harmless.
//
// # Errors
//
// Sweep returns everything that would not go, joined.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// A Target is the directory and the cgroup of a run.
type Target struct {
	// Dir is the run's directory, absolute and below another.
	Dir string
	// Cgroup is the path of the run's cgroup below the root of each hierarchy, without a slash at
	// its ends: a name unique to the run, or such a name and the name of a part of the run below.
	// Empty: none, and then only containers are identified.
	Cgroup string

	cgroupfs string // stands for /sys/fs/cgroup in tests
}

// Left lists the leftovers, a line each: processes, mounts, cgroups and sockets. An empty result
// means that nothing outlived the run.
func (t Target) Left() []string {
	var left []string
	for _, p := range t.Processes() {
		left = append(left, fmt.Sprintf("process %d %s", p.PID, p.Command))
	}
	for _, m := range t.Mounts() {
		left = append(left, "mount "+m)
	}
	for _, c := range t.Cgroups() {
		left = append(left, "cgroup "+c)
	}
	for _, s := range t.sockets() {
		left = append(left, "socket "+s)
	}
	return left
}

// Sweep kills the processes, unmounts, removes the cgroups and, last, the directory. It tries until
// ctx ends, since a killed process lets go of its mounts and cgroups only when reaped.
func (t Target) Sweep(ctx context.Context) error {
	return t.sweep(ctx, func() error { return os.RemoveAll(t.Dir) })
}

// SweepButFiles sweeps like Sweep, and leaves the directory with its files, but
// none of its sockets.
func (t Target) SweepButFiles(ctx context.Context) error {
	return t.sweep(ctx, func() error {
		var errs []error
		for _, socket := range t.sockets() {
			errs = append(errs, os.Remove(socket))
		}
		return errors.Join(errs...)
	})
}

func (t Target) sweep(ctx context.Context, last func() error) error {
	if err := t.validate(); err != nil {
		return err
	}
	for {
		err := t.once()
		if err == nil {
			err = last()
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("sweep: gave up on %s: %w", t.Dir, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (t Target) once() error {
	var errs []error
	for _, p := range t.Processes() {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("kill %d (%s): %w", p.PID, p.Command, err))
			continue
		}
		errs = append(errs, fmt.Errorf("process %d (%s) was still there", p.PID, p.Command))
	}
	for _, mount := range t.Mounts() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mount, err))
		}
	}
	for _, dir := range t.Cgroups() {
		if err := removeCgroup(dir); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	t.removeParents()
	if left := t.Mounts(); len(left) > 0 {
		// Never delete through a mount.
		return fmt.Errorf("still mounted: %s", strings.Join(left, ", "))
	}
	return nil
}

func (t Target) validate() error {
	clean := filepath.Clean(t.Dir)
	if !filepath.IsAbs(t.Dir) || clean != t.Dir || strings.Count(clean, "/") < 2 {
		return fmt.Errorf("sweep: %q is not an absolute, clean path at least two levels deep", t.Dir)
	}
	for name := range strings.SplitSeq(t.Cgroup, "/") {
		if t.Cgroup != "" && (name == "" || name == "." || name == "..") {
			return fmt.Errorf("sweep: the cgroup %q must be a path of names without a slash at its ends", t.Cgroup)
		}
	}
	return nil
}

// A Process belongs to the run.
type Process struct {
	PID     int
	Command string // command line, words joined by spaces
}

// Processes lists the processes in the run's cgroups, except this process and its parent.
func (t Target) Processes() []Process {
	found := map[int]Process{}
	for _, cgroup := range t.Cgroups() {
		for _, dir := range folders(cgroup) {
			text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				continue // gone meanwhile
			}
			for word := range strings.FieldsSeq(string(text)) {
				pid, err := strconv.Atoi(word)
				if err != nil || pid == os.Getpid() || pid == os.Getppid() {
					continue
				}
				words, err := os.ReadFile(filepath.Join("/proc", word, "cmdline"))
				if err == nil && len(words) > 0 { // not ended meanwhile
					command := strings.ReplaceAll(strings.Trim(string(words), "\x00"), "\x00", " ")
					found[pid] = Process{PID: pid, Command: command}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Process) int { return a.PID - b.PID })
}

// Mounts lists the mount points under the directory, deepest and latest first: the order in which
// they can be unmounted.
func (t Target) Mounts() []string {
	all, err := procfs.GetMounts()
	if err != nil {
		return nil
	}
	var mounts []string
	for _, mount := range slices.Backward(all) {
		if strings.HasPrefix(mount.MountPoint, t.Dir+"/") {
			mounts = append(mounts, mount.MountPoint)
		}
	}
	return mounts
}

func (t Target) sockets() []string {
	var sockets []string
	_ = filepath.WalkDir(t.Dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type()&os.ModeSocket != 0 {
			sockets = append(sockets, path)
		}
		return nil
	})
	return sockets
}
