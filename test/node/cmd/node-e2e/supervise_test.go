// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
	"github.com/evented-pleg/evented-pleg/test/node/sweep"
)

const (
	envTestDir    = "NODE_E2E_TEST_DIR"
	envTestScript = "NODE_E2E_TEST_SCRIPT"
)

// TestMain makes this test binary a supervisor when asked: the real one reaps
// every child of its process, which a test's own process must not.
func TestMain(m *testing.M) {
	if dir := os.Getenv(envTestDir); dir != "" {
		surviveBrokenPipes()
		if err := claim(dir); err != nil {
			panic(err)
		}
		os.Exit(superviseCommand(sweep.Target{Dir: dir}, []string{"/bin/sh", "-c", os.Getenv(envTestScript)}))
	}
	os.Exit(m.Run())
}

// orphan is a line of shell that leaves a process behind which ignores SIGTERM,
// belongs to a session of its own and whose parent is gone.
const orphan = `(trap '' TERM; setsid sh -c 'trap "" TERM; while :; do sleep 1; done' "$NODE_E2E_SUITE_BASE/daemon" &) ; `

// TestNothingIsLeft: whatever way the suite ends, the supervisor tells by its exit code, and what the suite started is gone.
func TestNothingIsLeft(t *testing.T) {
	tests := []struct {
		name, script string
		signal       syscall.Signal // sent to the supervisor once the script says "ready"
		want         int
	}{
		{name: "an orderly end", script: orphan + `exit 0`, want: 0},
		{name: "failed scenarios", script: orphan + `exit 1`, want: exitFailed},
		{name: "a crash", script: orphan + `kill -SEGV $$`, want: exitFailed},
		{name: "kill -9 of the suite", script: orphan + `kill -9 $$`, want: exitFailed},
		{
			name: "an interrupt", signal: syscall.SIGINT, want: exitInterrupted,
			script: orphan + `trap 'exit 130' TERM; echo ready; while :; do sleep 0.05; done`,
		},
		{
			name: "SIGTERM", signal: syscall.SIGTERM, want: exitInterrupted,
			script: orphan + `trap 'exit 130' TERM; echo ready; while :; do sleep 0.05; done`,
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
			stdout, err := supervisor.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := supervisor.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			if tt.signal != 0 {
				for lines.Scan() && lines.Text() != "ready" {
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
			if left := append((sweep.Target{Dir: dir}).Left(), named(t, dir)...); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the run's directory is still there: %v", err)
			}
		})
	}
}

// TestNobodyReads: a supervisor whose output nobody reads any more, as in a
// pipeline that was ended, cleans up all the same.
func TestNobodyReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	supervisor := exec.Command(os.Args[0])
	supervisor.Env = append(os.Environ(), envTestDir+"="+dir,
		envTestScript+"="+orphan+`trap 'exit 130' TERM; echo ready; while :; do sleep 0.05; done`)
	supervisor.Stdout, supervisor.Stderr = in, in
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := supervisor.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = supervisor.Wait()
	if got := supervisor.ProcessState.ExitCode(); got != exitInterrupted {
		t.Errorf("%v, want exit code %d", supervisor.ProcessState, exitInterrupted)
	}
	if left := append((sweep.Target{Dir: dir}).Left(), named(t, dir)...); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// named lists the processes that name the directory in their command lines: here nobody but the test's own orphans does.
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

func TestParse(t *testing.T) {
	t.Setenv("NODE_E2E_BOUNDED", "1")
	t.Setenv("NODE_E2E_RUN", "^01")
	t.Setenv("NODE_E2E_ENDPOINT", "unix:///run/x.sock")
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !o.bounded || o.run.String() != "^01" || o.endpoint != "unix:///run/x.sock" || !strings.HasSuffix(o.results, "build/node/results") {
		t.Errorf("options %+v", o)
	}
	if o, err = parse(nil); err != nil || len(o.runtimes) != 1 {
		t.Errorf("without --runtime: %q, %v, want the default one", o.runtimes, err)
	}
	for _, args := range [][]string{{"--run", "("}, {"extra"}, {"--nonsense"}, {"--runtime", "crio"}, {"--runtime", "docker"}} { // the endpoint is set

		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q) was not refused", args)
		}
	}
	t.Setenv("NODE_E2E_ENDPOINT", "")
	if _, err := parse([]string{"--runtime", "crio,docker"}); err == nil || !strings.Contains(err.Error(), `"docker"`) {
		t.Errorf("an unknown runtime in a list: %v, want an error that names it", err)
	}
	for names, want := range map[string]int{"crio,containerd-1.7": 2, "all": len(runtimes.Names())} {
		if o, err := parse([]string{"--runtime", names}); err != nil || len(o.runtimes) != want {
			t.Errorf("--runtime %s: %q, %v, want %d", names, o.runtimes, err, want)
		}
	}
}

// TestNewBaseIsClaimed: at no moment has a run's directory the name of one without being claimed.
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
