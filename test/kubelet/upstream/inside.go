// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
)

const cgroups = "/sys/fs/cgroup"

// address is the node's own, on a bridge without a way out.
const address = "192.168.77.2"

// RunNode is the first process of a node's namespaces: it makes the node and runs [RunSuite] in it,
// and reaps what is orphaned. When it ends, the kernel ends all processes of the node.
func RunNode(dir string) error {
	runtime.LockOSThread() // Unshare moves a thread, and the suite must be its child
	n, err := readNode(dir)
	if err != nil {
		return err
	}
	if err := enterCgroups(n.Cgroup); err != nil {
		return fmt.Errorf("upstream: cgroups of the node: %w", err)
	}
	if err := mounts(dir); err != nil {
		return fmt.Errorf("upstream: mounts of the node: %w", err)
	}
	if err := network(); err != nil {
		return fmt.Errorf("upstream: network of the node: %w", err)
	}
	path := fmt.Sprintf("%s/bin:%s/usr/sbin:%s", at, n.Config.Debs, os.Getenv("PATH"))
	suite, err := os.StartProcess(at+"/bin/self", []string{"self", Suite}, &os.ProcAttr{
		Dir: at + "/cwd", Env: []string{"PATH=" + path, "HOME=" + at + "/tmp", "TMPDIR=/tmp"},
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		if pid == suite.Pid && status.ExitStatus() != 0 {
			return fmt.Errorf("upstream: the suite's exit status is %d", status.ExitStatus())
		}
		if pid == suite.Pid {
			return nil
		}
	}
}

// enterCgroups puts this process into the node's cgroup, and makes that the root of a cgroup
// namespace.
func enterCgroups(name string) error {
	files, err := filepath.Glob(filepath.Join(cgroups, "*", name, "cgroup.procs"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no cgroup %s of version 1, and the suite needs one (%w)", name, err)
	}
	for _, file := range files {
		if strings.Contains(file, "/cpuset/") {
			clone := filepath.Join(filepath.Dir(file), "cgroup.clone_children")
			if err := os.WriteFile(clone, []byte("1"), 0); err != nil {
				return err
			}
		}
		if err := os.WriteFile(file, []byte("0"), 0); err != nil { // 0 is the writer
			return err
		}
	}
	return unix.Unshare(unix.CLONE_NEWCGROUP)
}

// mounts makes everything of the machine read-only, and mounts what a node has for itself.
func mounts(dir string) error {
	var errs []error
	do := func(err error, what string) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	mount := func(kind, point, options string) {
		do(unix.Mount(kind, point, kind, 0, options), "mount "+point)
	}
	bind := func(from, to string) { do(unix.Mount(from, to, "", unix.MS_BIND, ""), "bind "+to) }
	folder := func(name string) { do(os.MkdirAll(name, 0o755), "folder") }

	do(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), "make mounts private")
	bind(dir, at)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := standalone.Seal([]string{at}); err != nil {
		return err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	do(err, "cgroups")
	mount("proc", "/proc", "")
	do(standalone.Pretend(at+"/tmp"), "settings")
	mount("sysfs", "/sys", "")
	mount("tmpfs", cgroups, "")
	for line := range strings.Lines(string(own)) { // ID:CONTROLLERS:PATH
		controllers := strings.Split(line, ":")[1]
		point := filepath.Join(cgroups, strings.TrimPrefix(controllers, "name="))
		switch {
		case controllers == "":
			folder(cgroups + "/unified")
			mount("cgroup2", cgroups+"/unified", "")
		case strings.HasPrefix(controllers, "name="):
			folder(point)
			mount("cgroup", point, "none,"+controllers)
		default:
			folder(point)
			mount("cgroup", point, controllers)
		}
	}
	mount("tmpfs", "/tmp", "mode=1777")
	mount("tmpfs", "/run", "")
	folder("/var/lib/cni")
	for _, name := range []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers"} {
		folder(name)
		bind(filepath.Join(at, filepath.Base(name)), name)
	}
	for name, text := range map[string]string{
		"hosts":       "127.0.0.1 localhost\n" + address + " " + nodeName + "\n",
		"resolv.conf": "nameserver 127.0.0.1\n", // a lookup fails at once
	} {
		do(os.WriteFile(filepath.Join(at, name), []byte(text), 0o644), name)
		bind(filepath.Join(at, name), filepath.Join("/etc", name))
	}
	do(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""), "share mounts") // with containers
	return errors.Join(errs...)
}

const nodeName = "e2enode"

func network() error {
	errs := []error{unix.Sethostname([]byte(nodeName))}
	for _, args := range []string{
		"link set lo up", "link add eth0 type bridge", "addr add " + address + "/24 dev eth0",
		"link set eth0 up", "route add default via 192.168.77.1",
	} {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("ip %s: %w: %s", args, err, out))
		}
	}
	return errors.Join(errs...)
}
