// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child that dies with this process, in a process group of its own.
type Process struct {
	cmd  *exec.Cmd
	done chan error // capacity 1: its end
}

// Spawn starts a command with its output at the end of a log.
func Spawn(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	p := &Process{cmd: cmd, done: make(chan error, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel sends Pdeathsig at the end of the forking thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.done <- cmd.Wait()
		}
	}()
	return p, <-started
}

// Kill kills the process, like a crash, and waits for its end.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	p.done <- <-p.done
	return err
}

// Wait waits for the end of the process. At the end of ctx it kills the process.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case err := <-p.done:
		p.done <- err
		return err
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Kill())
	}
}

// Stop ends the process in order, and kills it after the grace.
func (p *Process) Stop(grace time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.done:
		p.done <- err
	case <-time.After(grace):
		_ = p.Kill()
		return fmt.Errorf("%s did not end by itself within %v", p.cmd.Path, grace)
	}
	return nil
}

// Alive says whether the process still runs.
func (p *Process) Alive() bool {
	select {
	case err := <-p.done:
		p.done <- err
		return false
	default:
		return true
	}
}
