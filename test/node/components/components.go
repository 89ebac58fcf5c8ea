// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package components names the programs of the node e2e tests, and has them built: a real
// container runtime and runc from the module registry, and this repository's own workload.
//
// # Model
//
// The scripts build and unpack in test/node make the programs, once for each version and Go
// release, in build/. A [Set] is the paths.
//
// # Concurrency
//
// The scripts take file locks, so two suites build once.
//
// # Errors
//
// An error has the script's last lines, which name the missing requirement where known (a C
// compiler, a reachable registry).
package components

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// RuncVersion is the runc of every runtime.
const RuncVersion = "v1.5.2"

// Module is the path of this repository's module.
const Module = "github.com/evented-pleg/evented-pleg"

// Set is the built programs.
type Set struct {
	// Root is the repository's root. Dir holds our own programs, RuncDir runc, RuntimeDir those of the
	// runtime. They are absolute.
	Root, Dir, RuncDir, RuntimeDir string
	// Runtime is the source of RuntimeDir; its zero value: none.
	Runtime runtimes.Runtime
}

// Program is the path of a program of the runtime: containerd, containerd-shim-runc-v2 and ctr, or
// crio and pinns.
func (s Set) Program(name string) string { return filepath.Join(s.RuntimeDir, name) }

// Runc is the path of runc.
func (s Set) Runc() string { return filepath.Join(s.RuncDir, "runc") }

// Workload is the path of the static program in every container.
func (s Set) Workload() string { return filepath.Join(s.Dir, "workload") }

// Build returns the programs, and builds missing programs: those of the named runtime with runc
// (see runtimes.ByName; empty: none), and the workload. The log receives a line for each step.
func Build(ctx context.Context, runtime string, log io.Writer) (set Set, err error) {
	if set.Root, err = FindRoot(); err != nil {
		return set, err
	}
	base := filepath.Join(set.Root, "build", "node")
	set.Dir = filepath.Join(base, "bin")
	set.RuncDir = filepath.Join(base, "runtimes", "runc")
	var args []string
	if runtime != "" {
		if set.Runtime, err = runtimes.ByName(runtime); err != nil {
			return set, fmt.Errorf("components: %w", err)
		}
		r := set.Runtime
		set.RuntimeDir = filepath.Join(base, "runtimes", cmp.Or(r.Built, r.Name))
		args = []string{RuncVersion, set.RuntimeDir, string(r.Family), r.Module, r.Version}
	}
	return set, Script(ctx, log, "test/node/build", args...)
}

// Unpack unpacks packages of Debian into a directory, unless they are there. None is installed.
// Before the directory may be -r and a release of Debian, in place of the machine's.
func Unpack(ctx context.Context, dirAndPackages ...string) error {
	return Script(ctx, io.Discard, "test/node/unpack", dirAndPackages...)
}

// Script runs a script of the repository. The end of ctx kills it with all that it has started.
func Script(ctx context.Context, log io.Writer, path string, args ...string) error {
	root, err := FindRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, path), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var complaints bytes.Buffer
	cmd.Stdout = log
	cmd.Stderr = &complaints
	if err := cmd.Run(); ctx.Err() != nil {
		return fmt.Errorf("components: interrupted: %w", context.Cause(ctx))
	} else if err != nil {
		text := complaints.Bytes()
		return fmt.Errorf(
			"components: %s: %w\n%s",
			strings.Join(cmd.Args, " "),
			err,
			text[max(0, len(text)-3000):],
		)
	}
	return nil
}

// FindRoot returns the root of this repository, for a working directory inside.
func FindRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", Module).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("components: run inside a checkout of %s: %w: %s", Module, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Conmon returns the path of CRI-O's container monitor.
func Conmon() (string, error) {
	path, err := exec.LookPath("conmon")
	if err != nil {
		return "", errors.New(
			"components: CRI-O needs conmon, which is not on PATH; install the distribution's package of that name",
		)
	}
	return path, nil
}
