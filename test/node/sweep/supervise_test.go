// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	envTestDir    = "NODE_E2E_TEST_DIR"
	envTestScript = "NODE_E2E_TEST_SCRIPT"
)

// TestMain makes this test binary a supervisor on request: the real supervisor reaps every child of
// its process, which a test's own process must not.
func TestMain(m *testing.M) {
	if dir := os.Getenv(envTestDir); dir != "" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		if err := claim(dir); err != nil {
			panic(err)
		}
		os.Exit(supervise(Target{Dir: dir}, []string{"/bin/sh", "-c", os.Getenv(envTestScript)}))
	}
	os.Exit(m.Run())
}

// orphan is a line of shell that leaves a process behind, deaf to SIGTERM, in its own session, and
// without a parent.
const orphan = `(trap '' TERM; setsid sh -c 'trap "" TERM; while :; do sleep 1; done' "$NODE_E2E_BASE/daemon" &) ; `

// waits is a line of shell that ends in order at SIGTERM.
const waits = `trap 'exit 130' TERM; echo ready; while :; do sleep 0.05; done`

// TestNothingIsLeft checks for any end of the suite that the supervisor's exit code is right, and
// the suite's processes are gone.
func TestNothingIsLeft(t *testing.T) {
	tests := []struct {
		name, script string
		signal       syscall.Signal // sent to the supervisor once the script says "ready"
		deaf         bool           // nobody reads its output then, as in an ended pipeline
		want         int
	}{
		{name: "an orderly end", script: orphan + `exit 0`, want: 0},
		{name: "failed scenarios", script: orphan + `exit 1`, want: ExitFailed},
		{name: "a crash", script: orphan + `kill -SEGV $$`, want: ExitFailed},
		{name: "kill -9 of the suite", script: orphan + `kill -9 $$`, want: ExitFailed},
		{
			name: "an interrupt", signal: syscall.SIGINT, want: ExitInterrupted, script: orphan + waits,
		},
		{
			name: "SIGTERM, and nobody reads", signal: syscall.SIGTERM, deaf: true,
			want: ExitInterrupted, script: orphan + waits,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			supervisor := exec.Command(os.Args[0])
			supervisor.Env = append(os.Environ(), envTestDir+"="+dir, envTestScript+"="+tt.script)
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			supervisor.Stdout, supervisor.Stderr = in, in
			if err := supervisor.Start(); err != nil {
				t.Fatal(err)
			}
			in.Close()
			lines := bufio.NewScanner(out)
			if tt.signal != 0 {
				for lines.Scan() && lines.Text() != "ready" {
				}
				if tt.deaf {
					out.Close()
				}
				if err := supervisor.Process.Signal(tt.signal); err != nil {
					t.Fatal(err)
				}
			}
			for lines.Scan() {
			}
			_ = supervisor.Wait()
			if got := supervisor.ProcessState.ExitCode(); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
			if left := append((Target{Dir: dir}).Left(), named(t, dir)...); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the run's directory is still there: %v", err)
			}
		})
	}
}

// named lists the processes with the directory in their command lines: here only the test's own
// orphans.
func named(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes under /proc: %v", err)
	}
	var found []string
	for _, file := range files {
		if command, err := os.ReadFile(file); err == nil && strings.Contains(string(command), dir+"/") {
			found = append(found, file+" "+string(command))
		}
	}
	return found
}

// TestNewBaseIsClaimed checks that a run's directory is never named without being locked.
func TestNewBaseIsClaimed(t *testing.T) {
	dir := t.TempDir()
	base, err := newBase(dir)
	if err != nil || !strings.HasPrefix(filepath.Base(base), prefix) {
		t.Fatalf("newBase = %s, %v", base, err)
	}
	lock, err := os.OpenFile(filepath.Join(base, lockName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		t.Error("the directory is not claimed")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("%q, want the run's directory only", left)
	}
}
