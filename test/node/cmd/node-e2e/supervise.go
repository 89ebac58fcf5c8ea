// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

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

	"github.com/evented-pleg/evented-pleg/test/node/report"
	"github.com/evented-pleg/evented-pleg/test/node/sweep"
)

// Where runs live, and what their directories and cgroups are called. Short,
// because socket paths must be.
const (
	parent = "/tmp"
	prefix = "pe2e-"
)

// grace is what an interrupted suite has to end by itself.
const grace = 30 * time.Second

// sweepLimit bounds the final clean-up.
const sweepLimit = time.Minute

func init() {
	// The kernel sends the child its parent-death signal when the thread that
	// forked it ends, so the fork must happen on a thread that lasts.
	runtime.LockOSThread()
}

// superviseAll runs the suite on each of the runtimes, tells a table of all of them if there are several, and returns the worst exit code.
func superviseAll(o options) int {
	if len(o.runtimes) == 1 {
		return supervise(o)
	}
	all, worst := o.results, 0
	var suites []*report.Suite
	for _, name := range o.runtimes {
		fmt.Printf("== %s\n", name)
		o.runtimes, o.results = []string{name}, filepath.Join(all, name)
		code := supervise(o)
		worst = max(worst, code)
		if s, err := report.ReadFile(filepath.Join(o.results, "results.json")); err == nil {
			suites = append(suites, s)
		}
		if code == exitInterrupted {
			break
		}
	}
	var table strings.Builder
	err := report.WriteMatrix(&table, suites)
	if err == nil {
		fmt.Print(table.String())
		err = os.WriteFile(filepath.Join(all, "matrix.md"), []byte(table.String()), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e: write the table:", err)
		return max(worst, exitFailed)
	}
	return worst
}

// supervise runs the suite as a child, reaps everything that is orphaned to it,
// and sweeps when the child has ended, in whatever way.
func supervise(o options) int {
	if o.endpoint == "" {
		if err := sweep.Preflight(); err != nil {
			fmt.Fprintln(os.Stderr, "node-e2e:", err)
			return exitCannotRun
		}
	}
	sweepAbandoned()
	base, err := newBase(parent)
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e: make the run's directory:", err)
		return exitCannotRun
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e:", err)
		return exitCannotRun
	}
	target := sweep.Target{Dir: base, Cgroup: filepath.Base(base)}
	return superviseCommand(target, append([]string{self}, os.Args[1:]...), envRuntime+"="+o.runtimes[0], envResults+"="+o.results)
}

// superviseCommand runs a command as the suite, and cleans up after it.
func superviseCommand(target sweep.Target, argv []string, env ...string) int {
	code := runChild(target, argv, env)
	if err := cleanUp(target); err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e: left behind:", err)
		return max(code, exitFailed)
	}
	return code
}

// runChild starts the suite and waits for it. Every orphan below it becomes a
// child of this process.
func runChild(target sweep.Target, argv, env []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e: become the reaper:", err)
		return exitCannotRun
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env:   append(append(os.Environ(), env...), envBase+"="+target.Dir, envCgroup+"="+target.Cgroup),
		Files: []uintptr{0, 1, 2},
		// A group of its own: a terminal's Ctrl-C reaches this process alone,
		// which tells the child in an orderly way.
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e: start the suite:", err)
		return exitCannotRun
	}
	ended := make(chan int, 1)
	go func() { ended <- reapUntil(pid) }()
	var kill <-chan time.Time
	for {
		select {
		case code := <-ended:
			return code
		case s := <-signals:
			fmt.Fprintf(os.Stderr, "node-e2e: %v: ending the suite and cleaning up\n", s)
			_ = syscall.Kill(pid, syscall.SIGTERM)
			kill = time.After(grace)
		case <-kill:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// reapUntil reaps children until the one with the PID has ended, and returns its
// exit code.
func reapUntil(pid int) int {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return exitFailed
		case got == pid && status.Signaled():
			fmt.Fprintf(os.Stderr, "node-e2e: the suite was ended by %v\n", status.Signal())
			return exitFailed
		case got == pid && status.Exited():
			return status.ExitStatus()
		}
	}
}

// cleanUp kills what outlived the suite, reaps it, and sweeps.
func cleanUp(target sweep.Target) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
	defer cancel()
	swept := make(chan error, 1)
	go func() { swept <- sweepWithChildren(ctx, target) }()
	for {
		select {
		case err := <-swept:
			if left := target.Left(); err == nil && len(left) > 0 {
				return fmt.Errorf("%q", left)
			}
			return err
		case <-time.After(10 * time.Millisecond):
			// Not blocking: a child may live on until the sweep kills it.
			for {
				if got, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); got <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func sweepWithChildren(ctx context.Context, target sweep.Target) error {
	for {
		children := sweep.Children(os.Getpid())
		if len(children) == 0 {
			return target.Sweep(ctx)
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v would not end", children)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
