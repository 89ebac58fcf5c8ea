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

func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	target := Target{Cgroup: "pe2e-run1", proc: proc}
	add := func(pid int, state, cmdline, cgroup string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		mkdir(t, dir)
		write(t, filepath.Join(dir, "stat"), statLine(pid, "a ) b", state))
		write(t, filepath.Join(dir, "cmdline"), cmdline)
		write(t, filepath.Join(dir, "cgroup"), cgroup)
	}
	const base = 1 << 22 // above the largest PID, so that none is this process
	id := strings.Repeat("0123456789abcdef", 4)
	target.Dir = t.TempDir()
	mkdir(t, filepath.Join(target.Dir, "runc", "k8s.io", id))
	add(base+1, "S", "containerd\x00--config\x00x.toml\x00", "1:pids:/pe2e-run1/own")
	add(base+2, "S", "/tool\x00pause\x00", "1:pids:/pe2e-run1/pod/c\n0::/\n")
	add(base+3, "S", "containerd\x00--config\x00/tmp/run10/config.toml\x00", "1:pids:/pe2e-run10/x")
	add(base+4, "Z", "", "1:pids:/pe2e-run1")
	// a stranger who looks on
	add(base+5, "S", "tail\x00-f\x00"+target.Dir+"/containerd.log\x00", "1:pids:/user.slice\n")
	add(base+6, "S", "unrelated\x00", "1:pids:/user.slice")
	// no parent was named for its pod
	add(base+7, "S", "/tool\x00sleep\x00", "2:memory:/\n1:pids:/k8s.io/"+id+"\n")
	add(base+8, "S", "conmon\x00", "0::/crio-conmon-"+id+".scope\n")
	// another runtime's
	add(base+9, "S", "/tool\x00sleep\x00", "1:pids:/k8s.io/"+strings.Repeat("f", 64)+"\n")
	add(base+10, "S", "x\x00", "1:pids:/other/pe2e-run1/own\n")

	want := []Process{
		{base + 1, "containerd --config x.toml"},
		{base + 2, "/tool pause"},
		{base + 7, "/tool sleep"},
		{base + 8, "conmon"},
	}
	if diff := cmp.Diff(want, target.Processes()); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	target.Cgroup = "pe2e-run1/pod"
	if diff := cmp.Diff([]Process{want[1], want[2], want[3]}, target.Processes()); diff != "" {
		t.Errorf("processes of a part of the run (-want +got):\n%s", diff)
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

	// The directory's own runc knows a container of a pod without a cgroup of the run's.
	id := strings.Repeat("0123456789abcdef", 4)
	mkdir(t, filepath.Join(target.Dir, "runc", id))
	mkdir(t, filepath.Join(parent, "cg", "pids", "k8s.io", id))
	mkdir(t, filepath.Join(parent, "cg", "memory", "crio"))
	mkdir(t, filepath.Join(parent, "cg", "memory", "k8s.io", "of another runtime"))

	// Two processes with the directory in their command lines: a process of the run, and a stranger.
	target.proc = filepath.Join(parent, "proc")
	child, stranger := startSleep(t, target, "1:pids:/pe2e-x/own\n"), startSleep(t, target, "1:pids:/user.slice\n")
	if left := target.Left(); len(left) != 5 {
		t.Errorf("before the sweep, Left = %q, want the process, three cgroups and the socket", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := target.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	<-child
	select {
	case <-stranger:
		t.Error("the sweep has ended a process of somebody else's because that names the run's directory")
	default:
	}
	if left := target.Left(); len(left) != 0 {
		t.Errorf("after the sweep, Left = %q", left)
	}
	if _, err := os.Stat(target.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(parent, "cg", "pids", "other")); err != nil {
		t.Errorf("a cgroup of others went: %v", err)
	}
	if _, err := os.Stat(filepath.Join(parent, "cg", "pids", "k8s.io")); !os.IsNotExist(err) {
		t.Errorf("the container's cgroup, or the one around it, is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(parent, "cg", "memory", "crio")); !os.IsNotExist(err) {
		t.Errorf("the empty cgroup around CRI-O's pods is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(parent, "cg", "memory", "k8s.io", "of another runtime")); err != nil {
		t.Errorf("another runtime's cgroup went: %v", err)
	}
}

// startSleep starts a process with the target's directory in its command line, shows it in the
// target's /proc in the cgroup, and returns a channel closed at its end.
func startSleep(t *testing.T, target Target, cgroup string) <-chan struct{} {
	t.Helper()
	process := exec.Command("sleep", "300")
	process.Args = []string{target.Dir + "/containerd.log", "300"}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(target.proc, strconv.Itoa(process.Process.Pid))
	mkdir(t, dir)
	write(t, filepath.Join(dir, "stat"), statLine(process.Process.Pid, "sleep", "S"))
	write(t, filepath.Join(dir, "cmdline"), strings.Join(process.Args, "\x00"))
	write(t, filepath.Join(dir, "cgroup"), cgroup)
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_ = process.Wait()
		_ = os.RemoveAll(dir)
	}()
	t.Cleanup(func() { _ = process.Process.Kill(); <-ended })
	return ended
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

// statLine is a /proc/PID/stat of a child of process 1.
func statLine(pid int, command, state string) string {
	return fmt.Sprintf("%d (%s) %s%s\n", pid, command, state, strings.Repeat(" 1", 49))
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
