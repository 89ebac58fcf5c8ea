// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

// stage is the argument with which this program is the first process of a vandal's node.
const stage = "vandal"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == stage {
		if err := runVandal(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A victim is what a node's command must not reach.
type victim struct{ Cgroup, Canary string }

// vandal does the harm of a kubelet that takes its working directory for a log folder, and worse.
const vandal = `
act() { name=$1; shift; if "$@" 2>/dev/null; then echo "$name: done"; else echo "$name: refused"; fi; }
echo "in $(pwd)"
act "remove the canary beside the node" rm "$1"
act "write to /" mkdir /canary-of-machine
act "write to /etc" touch /etc/canary-of-machine
act "write to /usr" touch /usr/canary-of-machine
act "write to its /tmp" touch /tmp/canary-of-machine
act "write to its /run" touch /run/canary-of-machine
act "write to its /var/lib" touch /var/lib/canary-of-machine
act "write to its /dev" touch /dev/canary-of-machine
act "remove all of its working directory" sh -c 'rm *'
`

func runVandal(dir string) error {
	v, err := Read[victim](dir)
	if err != nil {
		return err
	}
	return Machine{
		Dir: dir, Cgroup: v.Cgroup, Name: "vandal", Address: "192.0.2.1", IP: []string{"link set lo up"},
		Command: []string{"/bin/sh", "-c", vandal, "sh", v.Canary}, Env: []string{"PATH=" + os.Getenv("PATH")},
	}.Run()
}

// TestNothingOfTheMachineCanBeWritten runs a vandal as the command of a node.
func TestNothingOfTheMachineCanBeWritten(t *testing.T) {
	dir := t.TempDir()
	beside, err := os.MkdirTemp("/var/tmp", "machine-test-") // a node sees no folder in /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(beside) })
	v := victim{Cgroup: "machine-test-" + fmt.Sprint(os.Getpid()), Canary: filepath.Join(beside, "canary")}
	cmd, err := Command(dir, v.Cgroup, stage, v)
	t.Cleanup(func() { removeCgroup(t, v.Cgroup) })
	err = errors.Join(err, os.WriteFile(v.Canary, nil, 0o644), os.WriteFile(filepath.Join(dir, "cwd/bait"), nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "in " + At + "/cwd\n" +
		"remove the canary beside the node: refused\n" +
		"write to /: refused\n" +
		"write to /etc: refused\n" +
		"write to /usr: refused\n" +
		"write to its /tmp: done\n" +
		"write to its /run: done\n" +
		"write to its /var/lib: done\n" +
		"write to its /dev: done\n" +
		"remove all of its working directory: done\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := os.Stat(v.Canary); err != nil {
		t.Error(err)
	}
	for _, in := range []string{"/", "/etc", "/usr", "/tmp", "/run", "/var/lib", "/dev"} {
		path := filepath.Join(in, "canary-of-machine")
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was made on the machine", path)
			_ = os.Remove(path)
		}
	}
}

// removeCgroup removes a cgroup of an ended node with those below.
func removeCgroup(t *testing.T, name string) {
	for _, top := range unshare.Cgroups(name) {
		below, _ := filepath.Glob(filepath.Join(top, "*/")) // files are left alone
		for _, dir := range slices.Concat(below, []string{top}) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ENOENT) {
				t.Error(err)
			}
		}
	}
}
