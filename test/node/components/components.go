// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package components builds the programs that the node e2e tests run: a real
// containerd, its shim, ctr and runc from the module registry, and this
// repository's own workload and agent.
//
// # Model
//
// The foreign programs are built with `go install pkg@version`, which resolves
// them in a module graph of their own: nothing of containerd enters the go.mod
// of this repository. They are built once and kept under build/node, beside a
// stamp that names what they were built from; another version or another Go
// release builds them anew. Our own programs are built on every call, which the
// Go build cache makes cheap.
//
// # Concurrency
//
// Build takes a file lock, so that two suites that start at once build once.
//
// # Errors
//
// An error names the program, the command and the last lines it printed, and
// says what is missing where that is known (a C compiler, a reachable registry).
package components

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// The versions that the suite is written for and was measured with.
const (
	ContainerdVersion = "v2.4.2"
	RuncVersion       = "v1.5.2"
)

// Module is the path of this repository's module.
const Module = "github.com/evented-pleg/evented-pleg"

// Set is a directory of built programs.
type Set struct {
	// Dir holds the programs. It is absolute.
	Dir string
}

// Containerd is the path of the containerd daemon.
func (s Set) Containerd() string { return filepath.Join(s.Dir, "containerd") }

// Shim is the path of containerd's runc shim.
func (s Set) Shim() string { return filepath.Join(s.Dir, "containerd-shim-runc-v2") }

// Ctr is the path of containerd's own client, used to import the image.
func (s Set) Ctr() string { return filepath.Join(s.Dir, "ctr") }

// Runc is the path of runc.
func (s Set) Runc() string { return filepath.Join(s.Dir, "runc") }

// Workload is the path of the static program that runs in every container.
func (s Set) Workload() string { return filepath.Join(s.Dir, "workload") }

// Agent is the path of the node agent under test.
func (s Set) Agent() string { return filepath.Join(s.Dir, "agent") }

// stamp says what the foreign programs in a directory were built from.
type stamp struct {
	Containerd, Runc, Go, Platform string
}

func wantStamp(goVersion string) stamp {
	return stamp{
		Containerd: ContainerdVersion, Runc: RuncVersion,
		Go: goVersion, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// Options say what Build builds.
type Options struct {
	// Root is the repository's root directory, as FindRoot returns it.
	Root string
	// Runtime: build containerd, shim and runc too. ctr is built either way,
	// since it also loads the image into a containerd that is already there.
	Runtime bool
	// Own: build the workload and the agent.
	Own bool
	// Log receives one line for each step.
	Log io.Writer
}

// Build returns the programs, and builds those that are not there yet. A cold
// build of the runtime takes minutes of CPU and runs niced.
func Build(ctx context.Context, o Options) (Set, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	dir := filepath.Join(o.Root, "build", "node", "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Set{}, fmt.Errorf("components: make the build folder: %w", err)
	}
	unlock, err := lock(filepath.Join(o.Root, "build", "node", ".lock"))
	if err != nil {
		return Set{}, err
	}
	defer unlock()
	set := Set{Dir: dir}
	if o.Runtime {
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

func (s Set) buildRuntime(ctx context.Context, log io.Writer) error {
	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return fmt.Errorf("components: the go command is needed on PATH: %w", err)
	}
	want := wantStamp(strings.TrimSpace(string(version)))
	path := filepath.Join(s.Dir, "stamp.json")
	if s.current(path, want) {
		return nil
	}
	cc := "gcc"
	if words := strings.Fields(os.Getenv("CC")); len(words) > 0 {
		cc = words[0] // the rest are its flags
	}
	if _, err := exec.LookPath(cc); err != nil {
		return fmt.Errorf("components: runc needs a C compiler, and %q is not on PATH; install gcc or set CC", cc)
	}
	fmt.Fprintf(log, "building containerd %s, its shim and ctr (about a minute, once)\n", ContainerdVersion)
	const base = "github.com/containerd/containerd/v2/cmd/"
	if err := s.install(ctx, "0", ContainerdVersion, base+"containerd", base+"containerd-shim-runc-v2", base+"ctr"); err != nil {
		return err
	}
	fmt.Fprintf(log, "building runc %s (once)\n", RuncVersion)
	// Without the seccomp tag: no libseccomp needed. The suite's pods ask for
	// no seccomp profile.
	if err := s.install(ctx, "1", RuncVersion, "github.com/opencontainers/runc"); err != nil {
		return err
	}
	data, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// current reports whether every foreign program is there and was built from
// what is wanted.
func (s Set) current(path string, want stamp) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	var got stamp
	if json.Unmarshal(data, &got) != nil || got != want {
		return false
	}
	for _, program := range []string{s.Containerd(), s.Shim(), s.Ctr(), s.Runc()} {
		if info, err := os.Stat(program); err != nil || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

func (s Set) install(ctx context.Context, cgo, version string, packages ...string) error {
	args := []string{"install", "-trimpath"}
	for _, p := range packages {
		args = append(args, p+"@"+version)
	}
	cmd := niced(ctx, "go", args...)
	// Outside any module, so that no go.work or vendor directory interferes.
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOBIN="+s.Dir, "CGO_ENABLED="+cgo, "GOWORK=off", "GO111MODULE=on")
	if out, err := cmd.CombinedOutput(); err != nil {
		return buildError(ctx, cmd, out, err,
			"the module registry must be reachable (see `go env GOPROXY`), or the modules already in the module cache")
	}
	return nil
}

func (s Set) buildOwn(ctx context.Context, o Options) error {
	for program, pkg := range map[string]string{
		s.Workload(): "./test/node/workload",
		s.Agent():    "./test/node/cmd/agent",
	} {
		cmd := niced(ctx, "go", "build", "-trimpath", "-o", program, pkg)
		cmd.Dir = o.Root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return buildError(ctx, cmd, out, err, "")
		}
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

// niced runs a program at a lower priority where nice is installed, so that a
// cold build does not starve the machine.
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
