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
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
// (see runtimes.ByName; empty: none), and the workload. The log receives a line for each step. A
// cold build of a runtime takes minutes of CPU and runs niced.
func Build(ctx context.Context, runtime string, log io.Writer) (set Set, err error) {
	if set.Root, err = FindRoot(); err != nil {
		return set, err
	}
	base := filepath.Join(set.Root, "build", "node")
	set.Dir, set.RuncDir = filepath.Join(base, "bin"), filepath.Join(base, "runtimes", "runc")
	if err := os.MkdirAll(set.Dir, 0o755); err != nil {
		return set, fmt.Errorf("components: make the build folder: %w", err)
	}
	unlock, err := lock(filepath.Join(base, ".lock"))
	if err != nil {
		return set, err
	}
	defer unlock()
	if runtime != "" {
		if set.Runtime, err = runtimes.ByName(runtime); err != nil {
			return set, fmt.Errorf("components: %w", err)
		}
		set.RuntimeDir = filepath.Join(base, "runtimes", cmp.Or(set.Runtime.Built, set.Runtime.Name))
		if err := set.buildRuntime(ctx, log); err != nil {
			return set, err
		}
	}
	workload := niced(ctx, "go", "build", "-o", set.Workload(), "./test/node/workload")
	workload.Dir = set.Root
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

// Tags of the builds, against C libraries that no pod of ours uses.
const (
	containerdTags = "no_btrfs,no_devmapper"
	crioTags       = "containers_image_ostree_stub,containers_image_openpgp,exclude_graphdriver_btrfs"
)

// registryHint is advice for a failed download.
const registryHint = "the module registry must be reachable (see `go env GOPROXY`), or the modules already in the module cache"

// stamp records the source of the foreign programs in a directory.
type stamp struct {
	Module, Version, Go, Platform string
}

// buildRuntime builds runc and the runtime, if missing.
func (s Set) buildRuntime(ctx context.Context, log io.Writer) error {
	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return fmt.Errorf("components: the go command is needed on PATH: %w", err)
	}
	if _, err := exec.LookPath(compiler()[0]); err != nil {
		return fmt.Errorf("components: runc needs a C compiler, and %q is not on PATH; install gcc or set CC", compiler()[0])
	}
	on := stamp{Go: strings.TrimSpace(string(version)), Platform: runtime.GOOS + "/" + runtime.GOARCH}

	on.Module, on.Version = "github.com/opencontainers/runc", RuncVersion
	err = once(s.RuncDir, on, func() error {
		fmt.Fprintf(log, "building runc %s (once)\n", RuncVersion)
		// Without the seccomp tag: no libseccomp needed. The suite's pods ask for
		// no seccomp profile.
		_, err := goBuild(ctx, s.RuncDir, "1", "", on.Module, RuncVersion, ".")
		return err
	})
	if err != nil {
		return err
	}
	on.Module, on.Version = s.Runtime.Module, s.Runtime.Version
	build := s.buildContainerd
	if s.Runtime.Family == runtimes.CRIO {
		if err := needConmon(ctx, log); err != nil {
			return err
		}
		build = s.buildCRIO
	}
	return once(s.RuntimeDir, on, func() error { return build(ctx, log) })
}

func (s Set) buildContainerd(ctx context.Context, log io.Writer) error {
	fmt.Fprintf(log, "building containerd %s, its shim and ctr (one to three minutes, once)\n", s.Runtime.Version)
	_, err := goBuild(ctx, s.RuntimeDir, "0", containerdTags, s.Runtime.Module, s.Runtime.Version,
		"./cmd/containerd", "./cmd/containerd-shim-runc-v2", "./cmd/ctr")
	return err
}

func (s Set) buildCRIO(ctx context.Context, log io.Writer) error {
	fmt.Fprintf(log, "building CRI-O %s (three minutes and more, once)\n", s.Runtime.Version)
	module, err := goBuild(ctx, s.RuntimeDir, "1", crioTags, s.Runtime.Module, s.Runtime.Version, "./cmd/crio")
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(module, "pinns", "src", "*.c"))
	if err != nil || len(sources) == 0 {
		return fmt.Errorf("components: no sources of pinns in %s (%v)", module, err)
	}
	args := slices.Concat(compiler()[1:], []string{"-std=c99", "-Os", "-static", "-o", s.Program("pinns")}, sources)
	return run(ctx, exec.CommandContext(ctx, compiler()[0], args...), "")
}

// goBuild builds commands of a module into a directory, and returns the folder of the module's
// source. It builds in this folder: `go install` of a version refuses a module with exclude or
// replace lines, and a module without a served list of versions.
func goBuild(ctx context.Context, dir, cgo, tags, module, version string, packages ...string) (source string, err error) {
	env := append(os.Environ(), "CGO_ENABLED="+cgo, "GOWORK=off", "GO111MODULE=on")
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	download.Dir, download.Env = os.TempDir(), env // outside any module
	out, err := download.Output()
	var got struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &got); err != nil || jsonErr != nil || got.Dir == "" {
		return "", fmt.Errorf("components: download %s@%s: %w: %s\n%s", module, version, errors.Join(err, jsonErr), got.Error, registryHint)
	}
	args := []string{"build", "-mod=readonly", "-ldflags", "-s -w", "-tags", tags, "-o", dir + string(filepath.Separator)}
	build := niced(ctx, "go", append(args, packages...)...)
	build.Dir, build.Env = got.Dir, env
	return got.Dir, run(ctx, build, registryHint)
}

// once builds programs into a directory unless they were built there from the same source.
func once(dir string, want stamp, build func() error) error {
	path := filepath.Join(dir, "stamp.json")
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if built, err := os.ReadFile(path); err == nil && bytes.Equal(built, text) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return fmt.Errorf("components: %w", err)
	}
	if err := build(); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// compiler is the C compiler's command and its flags.
func compiler() []string {
	if words := strings.Fields(os.Getenv("CC")); len(words) > 0 {
		return words
	}
	return []string{"gcc"}
}

// Conmon returns the path of CRI-O's container monitor.
func Conmon() (string, error) {
	path, err := exec.LookPath("conmon")
	if err != nil {
		return "", errors.New("components: CRI-O needs conmon, which is not on PATH; install the distribution's package of that name")
	}
	return path, nil
}

// needConmon installs a missing conmon, as root on Debian's kin.
func needConmon(ctx context.Context, log io.Writer) error {
	_, missing := Conmon()
	apt, err := exec.LookPath("apt-get")
	if missing == nil || err != nil || os.Geteuid() != 0 {
		return missing
	}
	fmt.Fprintln(log, "installing conmon with apt-get (once)")
	for _, args := range [][]string{{"update", "-q"}, {"install", "-q", "-y", "--no-install-recommends", "conmon"}} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := run(ctx, cmd, "install conmon by hand"); err != nil {
			return err
		}
	}
	_, missing = Conmon()
	return missing
}

// Unpack unpacks packages of Debian into a directory, unless they are there. None is installed.
func Unpack(ctx context.Context, dir string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("components: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range packages {
		const script = `[ -e "$0.done" ] ||
			{ { apt-get download "$0" || { apt-get update && apt-get download "$0"; }; } &&
			dpkg -x "$0"_*.deb . && rm "$0"_*.deb && touch "$0.done"; }`
		cmd := exec.CommandContext(ctx, "sh", "-c", script, name)
		cmd.Dir = dir
		if err := run(ctx, cmd, "the packages of Debian must be reachable"); err != nil {
			return err
		}
	}
	return nil
}
