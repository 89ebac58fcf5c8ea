// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

const cgroups = "/sys/fs/cgroup"

// settings are the kernel settings required by a kubelet, which would write them otherwise.
var settings = map[string]int{
	"vm/overcommit_memory":      1,
	"vm/panic_on_oom":           0,
	"kernel/panic":              10,
	"kernel/panic_on_oops":      1,
	"kernel/keys/root_maxkeys":  1000000,
	"kernel/keys/root_maxbytes": 25000000,
}

// emptied are the machine's folders to which a kubelet writes with any configuration, and CRI-O at
// an image name without a registry. In the kubelet's namespace they are empty and go with it.
var emptied = []string{"/var/lib", "/var/log", "/var/cache"}

// RunInside is the work of a program called with [Inside] as its first argument: it makes its mount
// namespace read-only for everything of the machine, and becomes the kubelet. Args are the
// arguments after Inside: the node's folder, the name of the kubelet's cgroup or nothing, the
// folder of the runtime's logs or nothing, the binary and its arguments. It returns only on a
// failure, and does not start the binary while a foreign mount is writable.
func RunInside(args []string) error {
	if len(args) < 4 {
		return errors.New(
			"standalone: the folder of the node, its cgroup, the runtime's logs or the kubelet's binary is missing",
		)
	}
	f := folders{args[0]}
	cgroup := args[1]
	logs := args[2]
	argv := args[3:]
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("standalone: make the mounts private: %w", err)
	}
	if err := Pretend(f.tmp()); err != nil {
		return err
	}
	writable := f.writable()
	if cgroup != "" && unshare.Unified() { // no kubelet goes to another mount below: openat2(2)
		writable = append(writable, cgroups)
	} else if cgroup != "" {
		writable = append(writable, unshare.Cgroups(cgroup)...)
	}
	if logs != "" {
		writable = append(writable, logs)
	}
	if err := Seal(writable); err != nil {
		return fmt.Errorf("%s is not started: %w", argv[0], err)
	}
	// As on a real node: a kubelet whose folder is not shared binds it over itself, beside the making
	// of the sockets in it, and a file made below one mount cannot be renamed below the other.
	if err := syscall.Mount("", f.root(), "", syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("standalone: share %s: %w", f.root(), err)
	}
	if err := HideHugePages(); err != nil {
		return err
	}
	if err := os.Chdir(f.cwd()); err != nil {
		return fmt.Errorf("standalone: %w", err)
	}
	if err := os.Setenv("TMPDIR", f.scratch()); err != nil {
		return fmt.Errorf("standalone: %w", err)
	}
	return fmt.Errorf("standalone: exec %s: %w", argv[0], syscall.Exec(argv[0], argv, os.Environ()))
}

// Pretend has the kernel's settings read as a kubelet wants them, in this mount namespace, by files
// in a folder.
func Pretend(dir string) error {
	for name, want := range settings {
		if err := pretend(dir, name, want); err != nil {
			return fmt.Errorf("standalone: %s: %w", name, err)
		}
	}
	return nil
}

func pretend(dir, name string, want int) error {
	path := filepath.Join("/proc/sys", name)
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(have)) == strconv.Itoa(want) {
		return nil
	}
	file := filepath.Join(dir, "sysctl-"+strings.ReplaceAll(name, "/", "-"))
	if err := os.WriteFile(file, []byte(strconv.Itoa(want)+"\n"), 0o444); err != nil {
		return err
	}
	return syscall.Mount(file, path, "", syscall.MS_BIND, "")
}

// Seal makes every mount of the namespace read-only but those folders, and puts an empty folder of
// the namespace's own over each folder to which a kubelet writes unasked. It fails if any other
// mount can be written.
func Seal(writable []string) error {
	var own []string // writable mount points
	for _, dir := range writable {
		dir, err := filepath.EvalSymlinks(dir) // the kernel's list of mounts has no symbolic links
		if err != nil {
			return fmt.Errorf("standalone: %w", err)
		}
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("standalone: bind %s: %w", dir, err)
		}
		own = append(own, dir)
	}
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, readOnly); err != nil {
		return fmt.Errorf("standalone: make every mount read-only (Linux 5.12 can): %w", err)
	}
	for _, dir := range own {
		if err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("standalone: make %s writable: %w", dir, err)
		}
	}
	for _, dir := range emptied {
		if slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, dir+"/") }) {
			return fmt.Errorf(
				"standalone: the node's folder is in %s, which the kubelet sees empty: put it elsewhere (TMPDIR)",
				dir,
			)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
			return fmt.Errorf("standalone: an empty %s: %w", dir, err)
		}
		own = append(own, dir)
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return fmt.Errorf("standalone: %w", err)
	}
	var foreign []string
	for _, m := range mounts {
		if _, closed := m.Options["ro"]; !closed && !slices.Contains(own, m.MountPoint) {
			foreign = append(foreign, m.MountPoint)
		}
	}
	if len(foreign) > 0 {
		return fmt.Errorf(
			"standalone: it could write to %d mounts, such as %s",
			len(foreign),
			strings.Join(foreign[:min(5, len(foreign))], ", "),
		)
	}
	return nil
}

// HideHugePages hides the machine's huge pages in this mount namespace where no cgroup can limit
// them. A kubelet requests a limit of zero for each size, and CRI-O, which goes by /proc/cgroups,
// then tries to set it in an unmounted hierarchy, and makes no container. Containerd leaves the
// limit out.
func HideHugePages() error {
	const hugePages = "/sys/kernel/mm/hugepages" // where a kubelet sees which sizes the machine has
	_, err := os.Stat(filepath.Join(cgroups, "hugetlb"))
	controllers, _ := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers")) // of version 2
	if err == nil || slices.Contains(strings.Fields(string(controllers)), "hugetlb") {
		return nil
	}
	if err := syscall.Mount("tmpfs", hugePages, "tmpfs", syscall.MS_RDONLY, "size=4k"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("standalone: an empty %s: %w", hugePages, err)
	}
	return nil
}
