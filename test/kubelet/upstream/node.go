// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/test/kubelet/machine"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
	"github.com/evented-pleg/evented-pleg/test/node/components"
)

// Config is what all nodes of a run have in common. Paths are absolute.
type Config struct {
	// Tree is the release's source tree, Suite the folder of its tests' programs, Debs that of the
	// unpacked packages.
	Tree, Suite, Debs string
	// Runtime is the runtime's programs, and the one that plays nmeter.
	Runtime components.Set
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

const at = machine.At

// unitsDir is the folder of the units.
const unitsDir = at + "/units"

const (
	nodeName = "e2enode"
	address  = "192.168.77.2" // on a bridge without a way out
)

// RunNode is the first process of a node's namespaces: it makes the node and runs [RunSuite] in it.
func RunNode(dir string) error {
	n, err := readNode(dir)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("%s/bin:%s/usr/sbin:%s", at, n.Config.Debs, os.Getenv("PATH"))
	return machine.Machine{
		Dir: dir, Cgroup: n.Cgroup, Name: nodeName, Address: address,
		IP: []string{
			"link set lo up", "link add eth0 type bridge", "addr add " + address + "/24 dev eth0",
			"link set eth0 up", "route add default via 192.168.77.1",
		},
		Command: []string{at + "/bin/self", Suite},
		Env:     []string{"PATH=" + path, "HOME=" + at + "/tmp", "TMPDIR=/tmp"},
	}.Run()
}

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
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "report"), 0o755)); err != nil {
		return nil, err
	}
	if err := machine.Prepare(dir, n.Cgroup); err != nil {
		return nil, err
	}
	defer func() { // the namespaces are gone with their first process, and the mounts with them
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, "c")))
	}()
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
	cmd := exec.Command(filepath.Join(dir, "bin", "self"), Namespaces, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: machine.Namespaces}
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

// readNode reads the node in a folder.
func readNode(dir string) (n Node, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal(text, &n)
}
