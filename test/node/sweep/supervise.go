// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where runs live, and the prefix of their directories and cgroups: short, as socket paths must be.
const (
	parent = "/tmp"
	prefix = "pe2e-"
)

// Exit codes. The child uses them too.
const (
	ExitFailed      = 1
	ExitCannotRun   = 2
	ExitInterrupted = 130
)

const (
	// grace is how long an interrupted child may take to end by itself.
	grace = 30 * time.Second
	// sweepLimit bounds a clean-up.
	sweepLimit = 3 * time.Minute
)

// Environment by which the supervisor names the run's directory and cgroup to its child.
const (
	envBase   = "NODE_E2E_BASE"
	envCgroup = "NODE_E2E_CGROUP"
)

func init() {
	// The kernel sends the child its parent-death signal when the forking thread ends, so the fork
	// must happen on a lasting thread.
	runtime.LockOSThread()
}

// Main runs main in a child of this process, this program with the same arguments, and returns its
// exit code. The parent reaps every orphan below. After any end of the child the parent sweeps the
// target, and returns ExitFailed if anything is left.
//
// needsRoot reports whether the run is on a private runtime.
func Main(needsRoot bool, main func(Target) int) int {
	if base := os.Getenv(envBase); base != "" {
		target := Target{Dir: base, Cgroup: os.Getenv(envCgroup)}
		if err := target.Join(); err != nil {
			if needsRoot {
				return cannotRun(err)
			}
			target.Cgroup = "" // perhaps without root: leftovers are children of the supervisor
		}
		return main(target)
	}
	// a reader of our output that has gone must not end us
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if needsRoot {
		if err := Preflight(); err != nil {
			return cannotRun(err)
		}
	}
	sweepAbandoned()
	base, err := newBase(parent)
	if err != nil {
		return cannotRun(err)
	}
	self, err := os.Executable()
	if err != nil {
		return cannotRun(err)
	}
	return supervise(Target{Dir: base, Cgroup: filepath.Base(base)}, append([]string{self}, os.Args[1:]...))
}

func cannotRun(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return ExitCannotRun
}

// supervise runs a command as the child, then cleans up.
func supervise(target Target, argv []string) int {
	code := runChild(target, argv)
	if err := cleanUp(target); err != nil {
		fmt.Fprintln(os.Stderr, "sweep: left behind:", err)
		return max(code, ExitFailed)
	}
	return code
}

// runChild starts the child and waits. Every orphan below becomes a child of this process.
func runChild(target Target, argv []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return cannotRun(fmt.Errorf("sweep: become the reaper: %w", err))
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env:   append(os.Environ(), envBase+"="+target.Dir, envCgroup+"="+target.Cgroup),
		Files: []uintptr{0, 1, 2},
		// A group of its own: a terminal's Ctrl-C reaches this process alone.
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM},
	})
	if err != nil {
		return cannotRun(fmt.Errorf("sweep: start %s: %w", argv[0], err))
	}
	ended := make(chan int, 1)
	go func() { ended <- reapUntil(pid) }()
	var kill <-chan time.Time
	for {
		select {
		case code := <-ended:
			return code
		case s := <-signals:
			fmt.Fprintf(os.Stderr, "sweep: %v: cleaning up\n", s)
			_ = syscall.Kill(pid, syscall.SIGTERM)
			kill = time.After(grace)
		case <-kill:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// reapUntil reaps children until the process with the PID has ended, and returns its exit code.
func reapUntil(pid int) int {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return ExitFailed
		case got == pid && status.Signaled():
			fmt.Fprintf(os.Stderr, "sweep: the child was ended by %v\n", status.Signal())
			return ExitFailed
		case got == pid && status.Exited():
			return status.ExitStatus()
		}
	}
}

// cleanUp kills and reaps all processes that outlived the child, and sweeps.
func cleanUp(target Target) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
	defer cancel()
	for pids := children(os.Getpid()); len(pids) > 0; pids = children(os.Getpid()) {
		if ctx.Err() != nil {
			return fmt.Errorf("processes %v would not end", pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // its orphans become our children
		}
		time.Sleep(10 * time.Millisecond)
	}
	err := target.Sweep(ctx)
	if left := target.Left(); err == nil && len(left) > 0 {
		err = fmt.Errorf("%q", left)
	}
	return err
}

// A run's directory holds a lock, kept by its living supervisor. A directory with a free lock
// belongs to a supervisor killed with SIGKILL.
const lockName = "supervisor.lock"

// newBase makes a run's directory, locked before it is named: the next supervisor sweeps a named
// directory without a lock.
func newBase(parent string) (string, error) {
	made, err := os.MkdirTemp(parent, "new-"+prefix)
	if err != nil {
		return "", err
	}
	base := filepath.Join(parent, strings.TrimPrefix(filepath.Base(made), "new-"))
	// Containers of any user pass through.
	return base, errors.Join(os.Chmod(made, 0o711), claim(made), os.Rename(made, base))
}

// claim takes the lock of a run's directory until this process ends.
func claim(base string) error {
	fd, err := syscall.Open(filepath.Join(base, lockName), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
}

// sweepAbandoned sweeps the runs of dead supervisors.
func sweepAbandoned() {
	dirs, _ := filepath.Glob(filepath.Join(parent, prefix+"*")) // the pattern is good
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if err != nil {
			continue // not a run's, or just being made
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			fmt.Fprintln(os.Stderr, "sweep: an abandoned run:", dir)
			ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
			if err := (Target{Dir: dir, Cgroup: filepath.Base(dir)}).Sweep(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			cancel()
		}
		lock.Close()
	}
}
