// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package machine makes a node in namespaces of its own, as root on a machine with cgroups of any
// version.
//
// # Model
//
// [Machine.Run] is the work of the node's first process: it makes everything of the machine
// read-only but the node's folder, gives the node its own cgroups, mounts, host name and network,
// runs the node's command, and reaps what is orphaned. When the first process ends, the kernel ends
// all processes of the node and removes its mounts.
//
// # Concurrency
//
// A first process runs one Machine.
//
// # Errors
//
// Run names the step that failed. Nothing of the node runs then.
package machine

import (
	"encoding/json"
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
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

// At is the node's folder within its namespaces, so that names of sockets are short.
const At = "/mnt"

// namespaces are those of a node's first process. The machine's /tmp is hidden in them.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC

// folders are those of a node. Those from kubelet on are mounted where a kubelet writes.
const folders = "bin cwd tmp dev kubelet pods containers"

// Machine is a node.
type Machine struct {
	// Dir is the node's folder, outside its namespaces.
	Dir string
	// Cgroup is the name of the node's cgroup below the root of each hierarchy.
	Cgroup string
	// Name and Address are the node's, for its host name and /etc/hosts.
	Name, Address string
	// Keep are folders of the machine that the node's command needs, such as a checkout. They stay
	// visible, read-only, also where the node's own /tmp hides the machine's.
	Keep []string
	// IP are the arguments of commands ip, by which the node gets its network.
	IP []string
	// Command is the node's command and Env its environment.
	Command, Env []string
}

// description is the file in a node's folder with the node as the caller of [Command] knows it.
const description = "node.json"

// Command makes the folder of a node and its cgroup, and returns the command of its first process:
// a copy of this program with the name of a stage and the folder as arguments, for [Read].
func Command(dir, cgroup, stage string, node any) (*exec.Cmd, error) {
	for name := range strings.FieldsSeq(folders) {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	self := filepath.Join(dir, "bin", "self")
	// A copy made here would be open for writing in what is forked meanwhile, and could not be run.
	out, err := exec.Command("cp", fmt.Sprintf("/proc/%d/exe", os.Getpid()), self).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("machine: cp: %w: %s", err, out)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, description), text, 0o600), unshare.MakeCgroup(cgroup))
	cmd := exec.Command(self, stage, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	return cmd, err
}

// Read returns the node of a folder.
func Read[N any](dir string) (node N, err error) {
	text, err := os.ReadFile(filepath.Join(dir, description))
	if err != nil {
		return node, err
	}
	return node, json.Unmarshal(text, &node)
}

// Run makes the node of this process, the first of its namespaces, and returns when the node's
// command has ended. The command has the standard files of this process.
func (m Machine) Run() error {
	runtime.LockOSThread() // Unshare moves a thread, and the command must be its child
	if err := unshare.EnterCgroup(m.Cgroup); err != nil {
		return fmt.Errorf("machine: cgroups of the node: %w", err)
	}
	if err := m.mounts(); err != nil {
		return fmt.Errorf("machine: mounts of the node: %w", err)
	}
	if err := m.network(); err != nil {
		return fmt.Errorf("machine: network of the node: %w", err)
	}
	status, err := unshare.Reap(m.Command, &os.ProcAttr{
		Dir: At + "/cwd", Env: m.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err == nil && status.ExitStatus() != 0 {
		err = fmt.Errorf("machine: the exit status of %s is %d", m.Command[0], status.ExitStatus())
	}
	return err
}

// mounts makes everything of the machine read-only, and mounts what a node has for itself.
func (m Machine) mounts() error {
	var errs []error
	do := func(err error, what string) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	folder := func(name string) { do(os.MkdirAll(name, 0o755), "folder") }
	mount := func(kind, point, options string) {
		folder(point)
		do(unix.Mount(kind, point, kind, 0, options), "mount "+point)
	}
	bind := func(from, to string) { do(unix.Mount(from, to, "", unix.MS_BIND, ""), "bind "+to) }

	do(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), "make mounts private")
	bind(m.Dir, At)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := standalone.Seal([]string{At}); err != nil {
		return err
	}
	mount("proc", "/proc", "")
	do(standalone.Pretend(At+"/tmp"), "settings")
	mount("sysfs", "/sys", "")
	do(unshare.MountCgroups(), "cgroups")
	do(standalone.HideHugePages(), "huge pages")
	do(hide("/tmp", m.Keep), "hide /tmp")
	mount("tmpfs", "/run", "")
	// Containers make files in /dev.
	mount("tmpfs", At+"/dev", "mode=755")
	devices := strings.Fields(
		"-a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/kmsg /dev/tty /dev/ptmx /dev/fd " + At + "/dev",
	)
	out, err := exec.Command("cp", devices...).CombinedOutput()
	do(err, "cp to /dev: "+string(out))
	bind(At+"/dev", "/dev")
	mount("devpts", "/dev/pts", "newinstance,ptmxmode=0666")
	mount("tmpfs", "/dev/shm", "mode=1777")
	folder("/var/lib/cni")
	for _, name := range []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers"} {
		folder(name)
		bind(filepath.Join(At, filepath.Base(name)), name)
	}
	for name, text := range map[string]string{
		"hosts":       "127.0.0.1 localhost\n" + m.Address + " " + m.Name + "\n",
		"resolv.conf": "nameserver 127.0.0.1\n", // a lookup fails at once
	} {
		do(os.WriteFile(filepath.Join(At, name), []byte(text), 0o644), name)
		bind(filepath.Join(At, name), filepath.Join("/etc", name))
	}
	do(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""), "share mounts") // with containers
	return errors.Join(errs...)
}

// hide mounts an empty folder for everybody at point. The folders to keep are bound below it again,
// read-only.
func hide(point string, keep []string) error {
	held, err := hold(point, keep)
	if err != nil {
		return err
	}
	errs := []error{unix.Mount("tmpfs", point, "tmpfs", 0, "mode=1777")}
	for _, h := range held {
		errs = append(errs,
			os.MkdirAll(h.path, 0o755),
			unix.Mount(fmt.Sprintf("/proc/self/fd/%d", h.fd), h.path, "", unix.MS_BIND, ""),
			unix.Mount("", h.path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
			unix.Close(h.fd))
	}
	return errors.Join(errs...)
}

// heldFolder is a folder that a mount is about to hide.
type heldFolder struct {
	path string
	fd   int
}

// hold opens those of the folders that a mount at point hides.
func hold(point string, folders []string) (held []heldFolder, err error) {
	for _, path := range folders {
		if !strings.HasPrefix(path, point+"/") {
			continue
		}
		fd, failed := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", path, failed))
			continue
		}
		held = append(held, heldFolder{path, fd})
	}
	return held, err
}

func (m Machine) network() error {
	return errors.Join(unix.Sethostname([]byte(m.Name)), IP(m.IP...))
}

// IP runs commands of ip.
func IP(commands ...string) error {
	for _, args := range commands {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}
