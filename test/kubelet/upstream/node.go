// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
	"github.com/evented-pleg/evented-pleg/test/node/sweep"
)

// Config is what all nodes of a run have in common. Paths are absolute.
type Config struct {
	// Tree is the release's source tree, Suite the folder of its tests' programs, Debs that of the
	// unpacked packages.
	Tree, Suite, Debs string
	// Containerd is the folder of containerd and its shim. Workload is the program that plays nmeter.
	Containerd, Workload string
	// Out is the folder of the results, with a folder for each node.
	Out  string
	Seed int64
}

// Column is a kubelet under test.
type Column struct {
	Name, Binary string
	Gates        map[string]bool
}

// Part is a selection of specs, by regular expressions.
type Part struct {
	Name, Focus, Skip string
	// Procs is the number of specs at the same time, Within the time of all.
	Procs  int
	Within time.Duration
}

// Node is the run of a part on a column.
type Node struct {
	Config Config
	Column Column
	Part   Part
	Cgroup string // its name below the root of each hierarchy
}

// The stages of a node's program, as its first arguments.
const (
	Namespaces = "run-upstream-node"
	Suite      = "run-upstream-suite"
)

// Within its namespaces a node's folder is here, so that names of sockets are short.
const at = "/mnt"

// unitsDir is the folder of the units; tests have another.
var unitsDir = at + "/units"

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC

// folders are those of a node.
const folders = "bin cwd report kubelet pods containers cni tmp units " +
	"c/s c/certs.d/_default"

// startTime is the time for a node's start and end, beside that of the specs.
const startTime = 10 * time.Minute

// Run runs the specs and returns their results. Specs that fail are no error.
func (n *Node) Run(ctx context.Context) (results map[string]Result, err error) {
	name := n.Column.Name + "-" + n.Part.Name
	dir := filepath.Join(n.Config.Out, name)
	n.Cgroup = fmt.Sprintf("upstream-%d-%s", os.Getpid(), name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w (see %s)", name, err, dir)
		}
	}()
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	for d := range strings.FieldsSeq(folders) {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	self := filepath.Join(dir, "bin", "self")
	if err := copyProgram(self); err != nil {
		return nil, err
	}
	for _, program := range standIns {
		if err := os.Symlink("self", filepath.Join(dir, "bin", program)); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "node.json"), text, 0o644); err != nil {
		return nil, err
	}
	if err := standalone.MakeCgroup(n.Cgroup); err != nil {
		return nil, err
	}
	defer func() { // the namespaces are gone with their first process
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		target := sweep.Target{Dir: dir, Cgroup: n.Cgroup}
		err = errors.Join(err, target.SweepButFiles(ctx), os.RemoveAll(filepath.Join(dir, "c")))
	}()
	cmd := exec.Command(self, Namespaces, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	ctx, cancel := context.WithTimeout(ctx, n.Part.Within+startTime)
	defer cancel()
	process, err := standalone.Spawn(cmd, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	if err := process.Wait(ctx); err != nil {
		return nil, err
	}
	return readResults(filepath.Join(dir, "report", "junit.xml"))
}

// copyProgram copies this program to where a node sees it, whatever its own folder. No process may
// be forked meanwhile: it would hold the copy open for writing, and such a file cannot be run.
func copyProgram(to string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// readNode reads the node in a folder.
func readNode(dir string) (n Node, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal(text, &n)
}
