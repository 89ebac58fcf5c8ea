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
	"errors"
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

// Containerd is the path of the containerd daemon.
func (s Set) Containerd() string { return filepath.Join(s.RuntimeDir, "containerd") }

// Shim is the path of containerd's runc shim.
func (s Set) Shim() string { return filepath.Join(s.RuntimeDir, "containerd-shim-runc-v2") }

// Ctr is the path of containerd's own client, used to import the image.
func (s Set) Ctr() string { return filepath.Join(s.RuntimeDir, "ctr") }

// CRIO is the path of the CRI-O daemon.
func (s Set) CRIO() string { return filepath.Join(s.RuntimeDir, "crio") }

// Pinns is the path of the program by which CRI-O keeps namespaces.
func (s Set) Pinns() string { return filepath.Join(s.RuntimeDir, "pinns") }

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
	// Own: build the workload.
	Own bool
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
	if o.Own {
		if err := set.buildOwn(ctx, o); err != nil {
			return Set{}, err
		}
	}
	return set, nil
}

func (s Set) buildOwn(ctx context.Context, o Options) error {
	cmd := niced(ctx, "go", "build", "-o", s.Workload(), "./test/node/workload")
	cmd.Dir = o.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return buildError(ctx, cmd, out, err, "")
	}
	return nil
}

func buildError(ctx context.Context, cmd *exec.Cmd, out []byte, err error, hint string) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("components: interrupted: %w", cause)
	}
	text := fmt.Sprintf("components: %s: %v\n%s", strings.Join(cmd.Args, " "), err, tail(string(out), 15))
	if hint != "" {
		text += "\nhint: " + hint
	}
	return errors.New(text)
}

// niced runs a program at a lower priority if nice is installed, so that a cold build does not
// starve the machine.
func niced(ctx context.Context, name string, args ...string) *exec.Cmd {
	if nice, err := exec.LookPath("nice"); err == nil {
		return exec.CommandContext(ctx, nice, append([]string{"-n", "5", name}, args...)...)
	}
	return exec.CommandContext(ctx, name, args...)
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
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
