// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// DefaultCgroupFS is where the kernel's cgroup hierarchies are mounted.
const DefaultCgroupFS = "/sys/fs/cgroup"

// leaf is the cgroup of the run's own processes, below Target.Cgroup: with v2 a cgroup with
// children may hold no process itself, and the runtime makes the pods' cgroups there.
const leaf = "own"

// runcRoot is the folder below Target.Dir with runc's state: a folder for each container, named by
// its ID, directly or below a namespace's folder.
const runcRoot = "runc"

// Enter makes a command and all its descendants start in the run's cgroup. Call it once the command
// is complete and before its start. The process keeps its ID: a shell moves itself and becomes the
// command. Without a Cgroup Enter does nothing.
func (t Target) Enter(cmd *exec.Cmd) error {
	if t.Cgroup == "" {
		return nil
	}
	procs, err := t.makeLeaf()
	if err != nil {
		return err
	}
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, procs, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	return nil
}

// Join puts this process and its later descendants into the run's cgroup. Without a Cgroup Join
// does nothing.
func (t Target) Join() error {
	if t.Cgroup == "" {
		return nil
	}
	procs, err := t.makeLeaf()
	if err != nil {
		return err
	}
	if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("sweep: join the cgroup %s: %w", t.Cgroup, err)
	}
	return nil
}

// makeLeaf makes the cgroup of the run's own processes and returns the file for their IDs. A single
// hierarchy suffices to identify them.
func (t Target) makeLeaf() (procs string, err error) {
	if err := t.validate(); err != nil {
		return "", err
	}
	dir := filepath.Join(pidsOf(t.cgroupFS()), t.Cgroup, leaf)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("sweep: make the run's cgroup: %w", err)
	}
	return filepath.Join(dir, "cgroup.procs"), nil
}

// Cgroups lists the run's cgroup in every hierarchy with it (one for each controller with v1, one
// with v2), and those of its containers elsewhere, made for pods without a parent.
func (t Target) Cgroups() []string {
	var found []string
	containers := t.containers()
	for _, hierarchy := range hierarchies(t.cgroupFS()) {
		if t.Cgroup != "" {
			dir := filepath.Join(hierarchy, t.Cgroup)
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				found = append(found, dir)
			}
		}
		found = append(found, t.strayCgroups(hierarchy, containers)...)
	}
	return found
}

// strayCgroups are the cgroups in a hierarchy, outside the run's own, with the name of one of its
// containers.
func (t Target) strayCgroups(hierarchy string, containers []string) []string {
	if len(containers) == 0 {
		return nil
	}
	var found []string
	_ = filepath.WalkDir(hierarchy, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // gone meanwhile, or a file
		}
		if t.Cgroup != "" && path == filepath.Join(hierarchy, t.Cgroup) {
			return filepath.SkipDir
		}
		if path != hierarchy && namesOne(entry.Name(), containers) {
			found = append(found, path)
			return filepath.SkipDir
		}
		return nil
	})
	return found
}

// containers are the IDs of the run's containers, sandboxes among them, as runc's state tells them.
func (t Target) containers() []string {
	var ids []string
	for _, pattern := range []string{"*", "*/*"} {
		found, err := filepath.Glob(filepath.Join(t.Dir, runcRoot, pattern))
		if err != nil {
			continue
		}
		for _, path := range found {
			if id := filepath.Base(path); isContainerID(id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// isContainerID: runtimes name containers by 64 random hexadecimal digits, which no other container
// shares.
func isContainerID(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}

// namesOne reports whether the name of a cgroup has one of the IDs in it: runtimes put words before
// ("crio-conmon-") and behind (".scope").
func namesOne(name string, containers []string) bool {
	return slices.ContainsFunc(containers, func(id string) bool { return strings.Contains(name, id) })
}

func (t Target) cgroupFS() string {
	if t.cgroupfs != "" {
		return t.cgroupfs
	}
	return DefaultCgroupFS
}

// unified reports whether a mount directory has the one hierarchy of v2.
func unified(root string) bool {
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	return err == nil
}

// pidsOf returns the root of the hierarchy with the pids controller.
func pidsOf(root string) string {
	if unified(root) {
		return root
	}
	return filepath.Join(root, "pids")
}

// hierarchies returns the roots of the cgroup hierarchies under a mount directory. Symbolic links
// (cpu → cpu,cpuacct) are a single hierarchy.
func hierarchies(root string) []string {
	if unified(root) {
		return []string{root}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var roots []string
	for _, entry := range entries {
		if entry.IsDir() {
			roots = append(roots, filepath.Join(root, entry.Name()))
		}
	}
	return roots
}

// folders returns a cgroup and its descendants, parents first. A cgroup may go meanwhile.
func folders(top string) []string {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// removeCgroup removes a cgroup and its descendants. A cgroup whose last process has just been
// killed is busy for a moment.
func removeCgroup(top string) error {
	for _, dir := range slices.Backward(folders(top)) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("remove the cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// runtimeParents are the cgroups for pods without a parent in containerd and CRI-O.
var runtimeParents = []string{"k8s.io", "crio"}

// removeParents removes the empty cgroups around pods, if the run had a runtime. The kernel refuses
// while another runtime's containers are inside; runc makes a cgroup anew when needed.
func (t Target) removeParents() {
	if _, err := os.Stat(filepath.Join(t.Dir, runcRoot)); err != nil {
		return
	}
	for _, hierarchy := range hierarchies(t.cgroupFS()) {
		for _, parent := range runtimeParents {
			_ = syscall.Rmdir(filepath.Join(hierarchy, parent))
		}
	}
}
