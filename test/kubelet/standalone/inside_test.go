// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Inside {
		fmt.Fprintln(os.Stderr, RunInside(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestNothingOfTheMachineCanBeWritten runs a vandal in the kubelet's place. It needs root or, as
// most machines allow, a user namespace.
func TestNothingOfTheMachineCanBeWritten(t *testing.T) {
	beside, caller := canary(t), canary(t)
	vandal, err := filepath.Abs("testdata/vandal.sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(caller)
	n, err := NewNode(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.cwd(), "bait"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := n.sealed(self, "/bin/sh", vandal, beside, caller, n.cfg.Dir)
	if os.Geteuid() != 0 {
		own := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.Unshareflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = own, []syscall.SysProcIDMap{
			{ContainerID: 0, HostID: os.Getgid(), Size: 1},
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "in " + n.cwd() + "\n" +
		"temporary " + n.scratch() + "\n" +
		"remove the canary beside the node: refused\n" +
		"remove the canary in the caller's working directory: refused\n" +
		"write to the node's manifests: refused\n" +
		"write to /: refused\n" +
		"write to /tmp: refused\n" +
		"write to /proc: refused\n" +
		"write to a cgroup: refused\n" +
		"write to /var/lib: done\n" +
		"write to /var/log: done\n" +
		"write to /var/cache: done\n" +
		"write to its root: done\n" +
		"write to its temporary folder: done\n" +
		"remove all of its working directory: done\n" +
		"its root is a shared mount\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, dir := range []string{beside, caller} {
		if _, err := os.Stat(filepath.Join(dir, "canary")); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"/canary-of-standalone", "/tmp/canary-of-standalone", "/var/lib/canary-of-standalone", "/var/log/canary-of-standalone", "/var/cache/canary-of-standalone"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was made on the machine", path)
			_ = os.Remove(path)
		}
	}
}

// canary returns a folder with a file that must survive.
func canary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "canary"), []byte("alive\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
