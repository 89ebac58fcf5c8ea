// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench/child"
)

// Process is a child that dies with this process.
type Process struct{ *child.Process }

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
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p, err := child.Spawn(cmd)
	return &Process{p}, err
}

// Stop ends the process in order, and kills it after the grace.
func (p *Process) Stop(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return p.End(ctx, syscall.SIGTERM)
}
