// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
)

// Process is a running program in a process group of its own, out of the reach of the terminal's
// Ctrl-C.
type Process struct {
	cmd    *exec.Cmd
	killed atomic.Bool
	done   chan struct{} // closed once the process has ended and err is set
	err    error
}

// Spawn starts a program.
func Spawn(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() { // ends with the process
		defer close(p.done)
		runtime.LockOSThread() // Linux sends Pdeathsig at the end of the forking thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	return p, <-started
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Alive reports whether the process still runs.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill kills the process, like a crash, and waits for its end.
func (p *Process) Kill() error {
	p.killed.Store(true)
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Wait waits for the end of the process, and returns how it ended. At the end of ctx it kills the
// process.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Kill())
	}
}

// End sends the process the signal to end, and waits. At the end of ctx it kills the process.
func (p *Process) End(ctx context.Context, s os.Signal) error {
	if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v to %s: %w", s, p.cmd.Path, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		_ = p.Kill()
		return fmt.Errorf(
			"%s did not end by itself at %v, and was killed: %w",
			p.cmd.Path,
			s,
			context.Cause(ctx),
		)
	}
}
