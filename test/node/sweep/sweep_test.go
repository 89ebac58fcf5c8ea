// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// id is the ID of a container.
var id = strings.Repeat("0123456789abcdef", 4)

func TestProcesses(t *testing.T) {
	target := Target{Dir: t.TempDir(), Cgroup: "pe2e-run1", cgroupfs: t.TempDir()}
	mkdir(t, filepath.Join(target.Dir, "runc", "k8s.io", id))
	// add starts a process, shown in the cgroups.
	add := func(cgroups ...string) Process {
		cmd := exec.Command("sleep", "300")
		cmd.Args[0] = target.Dir + "/sleep" // names the directory, which makes it nobody's
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		for _, cgroup := range cgroups {
			dir := filepath.Join(target.cgroupfs, cgroup)
			mkdir(t, dir)
			write(t, filepath.Join(dir, "cgroup.procs"), fmt.Sprintln(cmd.Process.Pid))
		}
		return Process{cmd.Process.Pid, cmd.Args[0] + " 300"}
	}
	want := []Process{
		add("pids/pe2e-run1/own"),
		add("pids/pe2e-run1/pod/c", "memory/pe2e-run1/pod/c"),
		add("pids/k8s.io/" + id), // no parent was named for its pod
		add("memory/crio-conmon-" + id + ".scope"),
	}
	add("pids/pe2e-run10/own")
	add("pids/user.slice")
	add("pids/k8s.io/" + strings.Repeat("f", 64)) // another runtime's
	add("pids/other/pe2e-run1/own")
	if diff := cmp.Diff(want, target.Processes()); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	target.Cgroup = "pe2e-run1/pod"
	if diff := cmp.Diff(want[1:], target.Processes()); diff != "" {
		t.Errorf("processes of a part of the run (-want +got):\n%s", diff)
	}
}

func TestSweepRemovesAll(t *testing.T) {
	parent := t.TempDir()
	target := Target{Dir: filepath.Join(parent, "run"), Cgroup: "pe2e-x", cgroupfs: filepath.Join(parent, "cg")}
	mkdir(t, filepath.Join(target.Dir, "deep"))
	for _, controller := range []string{"pids", "memory"} {
		mkdir(t, filepath.Join(parent, "cg", controller, "pe2e-x", "pod", "container"))
		mkdir(t, filepath.Join(parent, "cg", controller, "other"))
	}
	// /tmp may be long in tests; a socket's path may not.
	t.Chdir(target.Dir)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "s.sock", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	t.Chdir(parent)

	// The directory's own runc knows a container of a pod without a cgroup of the run's.
	mkdir(t, filepath.Join(target.Dir, "runc", id))
	mkdir(t, filepath.Join(parent, "cg", "pids", "k8s.io", id))
	mkdir(t, filepath.Join(parent, "cg", "memory", "crio"))
	mkdir(t, filepath.Join(parent, "cg", "memory", "k8s.io", "of another runtime"))
	if left := target.Left(); len(left) != 4 {
		t.Errorf("before the sweep, Left = %q, want three cgroups and the socket", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := target.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if left := target.Left(); len(left) != 0 {
		t.Errorf("after the sweep, Left = %q", left)
	}
	for path, there := range map[string]bool{
		target.Dir: false,
		filepath.Join(parent, "cg", "pids", "other"):                          true,
		filepath.Join(parent, "cg", "pids", "k8s.io"):                         false,
		filepath.Join(parent, "cg", "memory", "crio"):                         false,
		filepath.Join(parent, "cg", "memory", "k8s.io", "of another runtime"): true,
	} {
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("after the sweep, %s: %v, want it there: %v", path, err, there)
		}
	}
}

// TestEnterAndJoin checks that a command that enters the run's cgroup is inside before it runs,
// keeps its arguments, and keeps its process.
func TestEnterAndJoin(t *testing.T) {
	for _, files := range []string{"pids/cgroup.procs", "cgroup.controllers"} { // v1, v2
		target := Target{Dir: "/tmp/run", Cgroup: "pe2e-x/07", cgroupfs: t.TempDir()}
		mkdir(t, filepath.Dir(filepath.Join(target.cgroupfs, files)))
		write(t, filepath.Join(target.cgroupfs, files), "")
		procs := filepath.Join(target.cgroupfs, strings.TrimSuffix(filepath.Dir(files), "."), target.Cgroup, leaf, "cgroup.procs")

		cmd := exec.Command("sh", "-c", `echo $$ "$1" "$2"; cat "$0"`, procs, "two words", "*")
		if err := target.Enter(cmd); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		pid := strconv.Itoa(cmd.Process.Pid)
		if got, want := string(out), pid+" two words *\n"+pid+"\n"; got != want {
			t.Errorf("%s: the command printed %q, want %q", files, got, want)
		}
		if err := target.Join(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(procs); err != nil || !strings.HasPrefix(string(got), strconv.Itoa(os.Getpid())) {
			t.Errorf("%s: after Join the cgroup holds %q, %v", files, got, err)
		}
	}
	cmd := exec.Command("true")
	if err := (Target{Dir: "/tmp/run"}).Enter(cmd); err != nil || cmd.Args[0] != "true" {
		t.Errorf("without a cgroup the command became %q, %v", cmd.Args, err)
	}
	if err := (Target{Dir: "/tmp/run", Cgroup: "a/../b"}).Enter(cmd); err == nil {
		t.Error("a cgroup that climbs was not refused")
	}
}

func TestSweepRefusesAWideTarget(t *testing.T) {
	for _, target := range []Target{
		{Dir: "/"}, {Dir: "/tmp"}, {Dir: "relative/dir"}, {Dir: "/tmp/a/../b"}, {Dir: ""},
		{Dir: "/tmp/a", Cgroup: ".."}, {Dir: "/tmp/a", Cgroup: "a/../b"}, {Dir: "/tmp/a", Cgroup: "/a"}, {Dir: "/tmp/a", Cgroup: "a/"},
	} {
		if err := target.Sweep(t.Context()); err == nil {
			t.Errorf("Sweep of %+v was not refused", target)
		}
	}
}

func TestPreflight(t *testing.T) {
	good := t.TempDir()
	mkdir(t, filepath.Join(good, "memory"))
	mkdir(t, filepath.Join(good, "pids"))
	write(t, filepath.Join(good, "memory", "cgroup.procs"), "")
	write(t, filepath.Join(good, "pids", "cgroup.procs"), "")
	unified := t.TempDir()
	write(t, filepath.Join(unified, "cgroup.controllers"), "cpu memory pids\n")
	half := t.TempDir()
	write(t, filepath.Join(half, "cgroup.controllers"), "cpu pids\n")
	proc := t.TempDir()
	write(t, filepath.Join(proc, "filesystems"), "nodev\tproc\nnodev\toverlay\n")

	tests := []struct {
		name             string
		euid             int
		cgroupfs, procfs string
		want             []string // parts of the error; none: no error
	}{
		{"v1", 0, good, proc, nil},
		{"v2", 0, unified, proc, nil},
		{"not root", 1000, good, proc, []string{"run as root"}},
		{"no cgroups", 0, t.TempDir(), proc, []string{"memory and pids"}},
		{"no memory controller", 0, half, proc, []string{"controllers memory are not"}},
		{"no overlayfs", 0, good, t.TempDir(), []string{"modprobe overlay"}},
		{"nothing at all", 1000, t.TempDir(), t.TempDir(), []string{"run as root", "memory and pids", "overlay"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := preflight(tt.euid, tt.cgroupfs, tt.procfs)
			if len(tt.want) == 0 && err != nil {
				t.Fatalf("unexpected: %v", err)
			}
			for _, part := range tt.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v does not contain %q", err, part)
				}
			}
		})
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
