// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"context"
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

func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	target := Target{Dir: "/tmp/run1", Cgroup: "pe2e-run1", proc: proc}
	add := func(pid int, state, cmdline, cgroup string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		mkdir(t, dir)
		write(t, filepath.Join(dir, "stat"), strconv.Itoa(pid)+" (a ) b) "+state+" 1 1 1")
		write(t, filepath.Join(dir, "cmdline"), cmdline)
		write(t, filepath.Join(dir, "cgroup"), cgroup)
	}
	const base = 1 << 22 // above the largest PID, so that none is this process
	add(base+1, "S", "containerd\x00--config\x00/tmp/run1/config.toml\x00", "1:pids:/")
	add(base+2, "S", "/tool\x00pause\x00", "1:pids:/pe2e-run1/pod/c\n0::/\n")
	add(base+3, "S", "containerd\x00--config\x00/tmp/run10/config.toml\x00", "1:pids:/pe2e-run10/x")
	add(base+4, "Z", "", "1:pids:/pe2e-run1")
	add(base+5, "S", "sh\x00-c\x00ls\x00/tmp/run1\x00", "1:pids:/")
	add(base+6, "S", "unrelated\x00", "1:pids:/user.slice")

	want := []Process{
		{base + 1, "containerd --config /tmp/run1/config.toml"},
		{base + 2, "/tool pause"},
		{base + 5, "sh -c ls /tmp/run1"},
	}
	if diff := cmp.Diff(want, target.Processes()); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
}

func TestMounts(t *testing.T) {
	proc := t.TempDir()
	mkdir(t, filepath.Join(proc, "self"))
	write(t, filepath.Join(proc, "self", "mountinfo"), strings.Join([]string{
		`21 1 254:0 / / rw - ext4 /dev/vda rw`,
		`30 21 0:50 / /tmp/run1/state/rootfs rw - overlay overlay rw`,
		`31 30 0:51 / /tmp/run1/state/rootfs/proc rw - proc proc rw`,
		`32 21 0:52 / /tmp/run10/shm rw - tmpfs shm rw`,
		`33 21 0:53 / /tmp/run1/with\040space rw - tmpfs shm rw`,
	}, "\n")+"\n")
	want := []string{"/tmp/run1/with space", "/tmp/run1/state/rootfs/proc", "/tmp/run1/state/rootfs"}
	if diff := cmp.Diff(want, Target{Dir: "/tmp/run1", proc: proc}.Mounts()); diff != "" {
		t.Errorf("mounts, in the order to unmount (-want +got):\n%s", diff)
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

	// A process that names the directory in its command line.
	child := exec.Command("sleep", "300")
	child.Args = []string{target.Dir + "/daemon", "300"}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()

	// The kernel fills in a command line a moment after exec has closed the pipe
	// that Start waits for.
	for len(target.Processes()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if left := target.Left(); len(left) != 4 {
		t.Errorf("before the sweep, Left = %q, want the process, two cgroups and the socket", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := target.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	<-ended
	if left := target.Left(); len(left) != 0 {
		t.Errorf("after the sweep, Left = %q", left)
	}
	if _, err := os.Stat(target.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(parent, "cg", "pids", "other")); err != nil {
		t.Errorf("a cgroup of others went: %v", err)
	}
}

func TestSweepRefusesAWideTarget(t *testing.T) {
	for _, target := range []Target{
		{Dir: "/"}, {Dir: "/tmp"}, {Dir: "relative/dir"}, {Dir: "/tmp/a/../b"}, {Dir: ""},
		{Dir: "/tmp/a", Cgroup: ".."}, {Dir: "/tmp/a", Cgroup: "a/b"},
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

func TestStat(t *testing.T) {
	const line = "42 (odd) name) S 7 42 42 0 -1"
	if got := stateOf(line); got != 'S' {
		t.Errorf("state %q, want S", got)
	}
	if got := parentOf(line); got != 7 {
		t.Errorf("parent %d, want 7", got)
	}
	if stateOf("") != 0 || parentOf("") != 0 || stateOf("x)") != 0 || parentOf("1 (x)") != 0 {
		t.Error("damaged lines must give zero")
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

func TestCPUTime(t *testing.T) {
	proc := t.TempDir()
	for thread, text := range map[string]string{"7": "1000 5 3\n", "8": "234 0 1\n"} {
		mkdir(t, filepath.Join(proc, "7", "task", thread))
		write(t, filepath.Join(proc, "7", "task", thread, "schedstat"), text)
	}
	got, err := cpuTime(proc, 7)
	if err != nil || got != 1234 {
		t.Errorf("cpuTime = %v, %v, want 1234ns", got, err)
	}
	if _, err := cpuTime(proc, 8); err == nil {
		t.Error("the CPU time of a process that does not exist was told")
	}
	own, err := CPUTime(os.Getpid())
	if err != nil || own <= 0 {
		t.Errorf("this process used %v, %v", own, err)
	}
}
