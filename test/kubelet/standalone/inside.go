// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// settings are the kernel settings that a kubelet insists on, and would write otherwise.
var settings = map[string]int{
	"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
	"kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
}

// RunInside is what a program does that was called with [Inside] as its first argument: it arranges the mount namespace that it was started in and becomes the kubelet.
// Args are what comes after Inside. It returns only if it fails.
func RunInside(args []string) error {
	if len(args) < 2 {
		return errors.New("standalone: the folder of the node or the kubelet's binary is missing")
	}
	dir, argv := args[0], args[1:]
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("standalone: make the mounts private: %w", err)
	}
	for name, want := range settings {
		if err := pretend(dir, name, want); err != nil {
			return fmt.Errorf("standalone: %s: %w", name, err)
		}
	}
	if err := syscall.Mount("tmpfs", "/var/lib", "tmpfs", 0, "size=64m"); err != nil {
		return fmt.Errorf("standalone: an empty /var/lib: %w", err)
	}
	return fmt.Errorf("standalone: exec %s: %w", argv[0], syscall.Exec(argv[0], argv, os.Environ()))
}

// pretend has a kernel setting read as wanted, in this mount namespace.
func pretend(dir, name string, want int) error {
	path := filepath.Join("/proc/sys", name)
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(have)) == strconv.Itoa(want) {
		return nil
	}
	file := filepath.Join(dir, "tmp", "sysctl-"+strings.ReplaceAll(name, "/", "-"))
	if err := os.WriteFile(file, []byte(strconv.Itoa(want)+"\n"), 0o444); err != nil {
		return err
	}
	return syscall.Mount(file, path, "", syscall.MS_BIND, "")
}
