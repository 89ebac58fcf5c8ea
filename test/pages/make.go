// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// page is a report.html with the objects to be drawn on it.
type page struct {
	name, path string
	charts     int
	// bands: the states of a stream are shown.
	bands bool
}

// tool is pleg-bench, with its working directory.
type tool struct {
	path    string
	verbose bool
}

// command returns a command that is asked to end first, so that it removes its pods.
func (t tool) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs a command that ends with one of the statuses 0, 1 and 3: pages are made of bad runs too.
func (t tool) run(ctx context.Context, args ...string) error {
	out, err := t.command(ctx, args...).CombinedOutput()
	if t.verbose {
		fmt.Printf("$ pleg-bench %v\n%s\n", args, out)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && (exit.ExitCode() == 1 || exit.ExitCode() == 3) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pleg-bench %v: %w\n%s", args, err, out)
	}
	return nil
}

// makePages builds pleg-bench and has it make a page of every kind.
func makePages(ctx context.Context, tmp, out string, verbose bool) ([]page, error) {
	t := tool{filepath.Join(tmp, "pleg-bench"), verbose}
	build := exec.CommandContext(ctx, "go", "build", "-o", t.path, "github.com/evented-pleg/evented-pleg/cmd/pleg-bench")
	if msg, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, msg)
	}
	in := func(name string) string { return filepath.Join(out, name) }
	for _, args := range [][]string{
		{"run", "--duration", "5s", "--rate", "50", "--restart-runtime-at", "2s", "--out", in("run")},
		{"run", "--duration", "5s", "--pods", "20", "--rate", "50", "--compare", "--fault", "drop=0.1", "--expect", "latency.p99<1us", "--out", in("bad")},
		{"run", "--duration", "3s", "--rate", "0", "--pods", "5", "--out", in("quiet")},
		{"stress", "--step", "1s", "--max-rate", "300", "--out", in("stress")},
		{"compare", in("run"), in("bad"), "--out", in("compare")},
		{"compare", in("run"), "--out", in("sides")},
	} {
		if err := t.run(ctx, args...); err != nil {
			return nil, err
		}
	}
	if err := t.watch(ctx, filepath.Join(tmp, "cri.sock"), in("watch")); err != nil {
		return nil, err
	}
	return []page{
		{"run", in("run"), 6, true}, {"bad", in("bad"), 6, true}, {"quiet", in("quiet"), 4, true}, {"stress", in("stress"), 6, true},
		{"compare", in("compare"), 0, false}, {"sides", in("sides"), 0, false}, {"watch", in("watch"), 4, true},
	}, nil
}

// watch watches a runtime with faults.
func (t tool) watch(ctx context.Context, socket, out string) error {
	fakeCtx, stop := context.WithCancel(ctx)
	fake := t.command(fakeCtx, "fake", "--socket", socket, "--pods", "5", "--rate", "40", "--fault", "duplicate=0.2", "--fault", "stale=0.2", "--fault", "cut=0.01")
	fake.Stderr = os.Stderr
	if err := fake.Start(); err != nil {
		stop()
		return fmt.Errorf("pleg-bench fake: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- fake.Wait() }()
	for {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		select {
		case err := <-ended:
			stop()
			return fmt.Errorf("pleg-bench fake ended: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	err := t.run(ctx, "watch", "--endpoint", socket, "--duration", "6s", "--out", out)
	stop()
	<-ended // by our signal
	return err
}
