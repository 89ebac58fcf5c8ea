// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package components builds the programs of the node e2e tests: a real container runtime and runc
// from the module registry, and this repository's own workload.
//
// # Model
//
// The foreign programs are built in the folders of their own modules, as served by the registry:
// nothing of them enters the go.mod of this repository. Each runtime has a folder under
// build/node/runtimes, beside a stamp with its sources; another version or another Go release
// builds it anew. Our own programs are built on every call, cheaply thanks to the Go build cache.
// CRI-O's conmon, in no registry of modules, comes from the distribution's packages.
//
// # Concurrency
//
// Build takes a file lock, so two suites build once.
//
// # Errors
//
// An error names the program, the command and its last lines, and the missing requirement where
// known (a C compiler, a reachable registry).
package components

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
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
	// Dir holds our own programs, RuncDir runc, RuntimeDir those of the runtime. They are absolute.
	Dir, RuncDir, RuntimeDir string
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

// Options select the programs to build.
type Options struct {
	// Root is the repository's root directory, from FindRoot.
	Root string
	// Runtime is the name of a runtime to build, for runtimes.ByName, with runc. Empty: none.
	Runtime string
	// Log receives a line for each step.
	Log io.Writer
}

// Build returns the programs, and builds missing programs. A cold build of the runtime takes
// minutes of CPU and runs niced.
func Build(ctx context.Context, o Options) (Set, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	base := filepath.Join(o.Root, "build", "node")
	set := Set{Dir: filepath.Join(base, "bin"), RuncDir: filepath.Join(base, "runtimes", "runc")}
	if o.Runtime != "" {
		var err error
		if set.Runtime, err = runtimes.ByName(o.Runtime); err != nil {
			return Set{}, fmt.Errorf("components: %w", err)
		}
		set.RuntimeDir = filepath.Join(base, "runtimes", cmp.Or(set.Runtime.Built, set.Runtime.Name))
	}
	if err := os.MkdirAll(set.Dir, 0o755); err != nil {
		return Set{}, fmt.Errorf("components: make the build folder: %w", err)
	}
	unlock, err := lock(filepath.Join(base, ".lock"))
	if err != nil {
		return Set{}, err
	}
	defer unlock()
	if o.Runtime != "" {
		if err := set.buildRuntime(ctx, o.Log); err != nil {
			return Set{}, err
		}
	}
	workload := niced(ctx, "go", "build", "-o", set.Workload(), "./test/node/workload")
	workload.Dir = o.Root
	workload.Env = append(os.Environ(), "CGO_ENABLED=0")
	return set, run(ctx, workload, "")
}

// run runs a command. Its error has the end of the output, and a hint.
func run(ctx context.Context, cmd *exec.Cmd, hint string) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("components: interrupted: %w", cause)
	}
	return fmt.Errorf("components: %s: %w\n%s\n%s", strings.Join(cmd.Args, " "), err, out[max(0, len(out)-3000):], hint)
}

// niced is a program at a lower priority, so that a cold build does not starve the machine.
func niced(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nice", append([]string{"-n", "5", name}, args...)...)
}

// FindRoot returns the root of this repository, for a working directory inside.
func FindRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", Module).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("components: run inside a checkout of %s: %w: %s", Module, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// lock takes an exclusive lock on a file until the returned function is called.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("components: open the build lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("components: lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
