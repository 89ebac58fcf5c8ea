// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package unshare

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Environment by which this test binary is a run, of a script.
const (
	envParent = "UNSHARE_TEST_PARENT"
	envScript = "UNSHARE_TEST_SCRIPT"
)

func TestMain(m *testing.M) {
	switch script := os.Getenv(envScript); {
	case script == "":
		os.Exit(m.Run())
	case Dir() == "":
		os.Exit(supervise(os.Getenv(envParent)))
	default:
		os.Exit(Main(func() int {
			err := syscall.Exec("/bin/sh", []string{"sh", "-c", script}, os.Environ())
			panic(err)
		}))
	}
}

const (
	// orphan is a line of shell that leaves a process behind, deaf to SIGTERM, in its own session,
	// without a parent and in a cgroup of its own, and a mount.
	orphan = `echo "$NODE_E2E_DIR"; mount -t tmpfs none /mnt; mkdir /sys/fs/cgroup/*/inner 2>/dev/null
		touch /run/containerd/stray-"${NODE_E2E_DIR##*/}" /var/lib/containers/cache/stray-"${NODE_E2E_DIR##*/}" || exit 9
		(trap '' TERM; setsid sh -c 'echo 0 >$(ls /sys/fs/cgroup/*/inner/cgroup.procs | head -n1); trap "" TERM; while :; do sleep 1; done' "$UNSHARE_TEST_PARENT/daemon" &)
		`
	// waits is a line of shell that ends in order at SIGTERM.
	waits = `trap 'exit 130' TERM; echo ready; while :; do sleep 0.05; done`
)

// TestNothingIsLeft checks for any end of a program that the exit code is right, and processes,
// mounts, cgroups and files are gone; those of a killed supervisor with the next.
func TestNothingIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		signal       syscall.Signal // sent to the supervisor once the script says "ready"
		deaf         bool           // nobody reads its output then, as in an ended pipeline
		want         int
	}{
		{name: "an orderly end", script: orphan + `exit 0`, want: 0},
		{name: "failed scenarios", script: orphan + `exit 1`, want: ExitFailed},
		{name: "a crash", script: orphan + `kill -SEGV $$`, want: ExitFailed},
		{name: "kill -9 of the program", script: orphan + `kill -9 $$`, want: ExitFailed},
		{name: "an interrupt", signal: syscall.SIGINT, want: ExitInterrupted, script: orphan + waits},
		{name: "SIGTERM, and nobody reads", signal: syscall.SIGTERM, deaf: true, want: ExitInterrupted, script: orphan + waits},
		{name: "kill -9 of the supervisor", signal: syscall.SIGKILL, want: -1, script: orphan + waits},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			supervisor := exec.Command(os.Args[0])
			supervisor.Env = append(os.Environ(), envParent+"="+parent, envScript+"="+tt.script)
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			supervisor.Stdout, supervisor.Stderr = in, in
			if err := supervisor.Start(); err != nil {
				t.Fatal(err)
			}
			in.Close()
			var said []string // the run's directory first
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				said = append(said, lines.Text())
				if lines.Text() == "ready" {
					if tt.deaf {
						out.Close()
					}
					if err := supervisor.Process.Signal(tt.signal); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := supervisor.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			if got := supervisor.ProcessState.ExitCode(); got != tt.want {
				t.Errorf("exit code %d, want %d: %q", got, tt.want, said)
			}
			if tt.signal == syscall.SIGKILL {
				if left, _ := filepath.Glob(filepath.Join(parent, prefix+"*")); len(left) != 1 {
					t.Errorf("%q, want the killed run's directory", left)
				}
				removeAbandoned(parent)
			}
			if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) > 0 {
				t.Errorf("files are left: %q", left)
			}
			if len(said) == 0 {
				t.Fatal("the script has not run")
			}
			if left := Cgroups(filepath.Base(said[0])); len(left) > 0 {
				t.Errorf("cgroups are left: %q", left)
			}
			for _, dir := range strayed {
				if left, _ := filepath.Glob(filepath.Join(dir, "stray-"+filepath.Base(said[0]))); len(left) > 0 {
					t.Errorf("files are left: %q", left)
				}
			}
			for end := time.Now().Add(30 * time.Second); len(named(t, parent)) > 0; time.Sleep(time.Millisecond) {
				if tt.signal != syscall.SIGKILL || time.Now().After(end) {
					t.Fatalf("processes are left: %q", named(t, parent))
				}
			}
		})
	}
	t.Cleanup(func() { // after those beside each other
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil || strings.Contains(string(mounts), "none /mnt tmpfs") {
			t.Errorf("a mount is left (%v)", err)
		}
	})
}

// TestKilledAtOnce kills a supervisor as soon as its directory has a name: it removes the directory
// and the cgroup, whatever it has started by then.
func TestKilledAtOnce(t *testing.T) {
	for range 10 {
		parent := t.TempDir()
		supervisor := exec.Command(os.Args[0])
		supervisor.Env = append(os.Environ(), envParent+"="+parent, envScript+"="+waits)
		if err := supervisor.Start(); err != nil {
			t.Fatal(err)
		}
		var made []string
		for end := time.Now().Add(30 * time.Second); len(made) == 0; {
			made, _ = filepath.Glob(filepath.Join(parent, prefix+"*"))
			if time.Now().After(end) {
				t.Fatal("no directory")
			}
		}
		if err := supervisor.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = supervisor.Wait() // the state tells
		if !supervisor.ProcessState.Exited() {
			t.Errorf("the supervisor: %v, want an end in order", supervisor.ProcessState)
		}
		if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) > 0 {
			t.Errorf("files are left: %q", left)
		}
		if left := Cgroups(filepath.Base(made[0])); len(left) > 0 {
			t.Errorf("cgroups are left: %q", left)
		}
		removeAbandoned(parent) // those of a failed test
	}
}

// named lists the processes with the directory in their command lines: here only the test's own
// orphans.
func named(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes under /proc: %v", err)
	}
	for _, file := range files {
		if command, err := os.ReadFile(file); err == nil && strings.Contains(string(command), dir+"/") {
			found = append(found, file+" "+string(command))
		}
	}
	return found
}

// TestADirThatWasNeverNamedIsRemoved checks that what a supervisor leaves that is killed between
// the making of its directory and the naming goes an hour later, and no sooner.
func TestADirThatWasNeverNamedIsRemoved(t *testing.T) {
	parent := t.TempDir()
	old, young := filepath.Join(parent, "new-"+prefix+"old"), filepath.Join(parent, "new-"+prefix+"young")
	long := time.Now().Add(-2 * unnamed)
	if err := errors.Join(os.Mkdir(old, 0o700), os.Mkdir(young, 0o700), os.Chtimes(old, long, long)); err != nil {
		t.Fatal(err)
	}
	removeAbandoned(parent)
	if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) != 1 || left[0] != young {
		t.Errorf("%q, want %s only", left, young)
	}
}

// TestNewDirIsLocked checks that a run's directory is never named without being locked.
func TestNewDirIsLocked(t *testing.T) {
	parent := t.TempDir()
	dir, err := newDir(parent, prefix)
	if err != nil {
		t.Fatal(err)
	}
	removeAbandoned(parent)
	if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) != 1 || left[0] != dir {
		t.Errorf("%q, want the run's directory %s only", left, dir)
	}
}
