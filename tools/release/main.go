// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command release makes a release of the last commit.
//
//	go run ./tools/release -version v0.1.0 -out build/release [-tag] [-targets linux/amd64,…]
//
// It writes static binaries of pleg-bench, Debian packages, a container image as OCI and as docker
// archive, an SBOM and checksums. -tag tags every module, each after those that it needs.
//
// The binaries are built from the module proxy that strangers would use, with the versions of
// go.mod, not those of the workspace. Every file depends on the commit and on the Go release alone.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"

	"github.com/evented-pleg/evented-pleg/internal/modproxy"
)

const (
	program = "pleg-bench"
	targets = "linux/amd64,linux/arm64,linux/s390x,darwin/amd64,darwin/arm64"
)

func main() {
	version := flag.String("version", "", "version of every module, such as v0.1.0")
	out := flag.String("out", filepath.Join("build", "release"), "folder for the files; it must not be there yet")
	tag := flag.Bool("tag", false, "tag the commit for every module that is released")
	list := flag.String("targets", targets, "what to build for")
	flag.Parse()
	if !semver.IsValid(*version) || semver.Build(*version) != "" || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "release: -version %q: write a version such as v0.1.0, and no other argument\n", *version)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *version, *out, strings.Split(*list, ","), *tag); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what all files of a release share.
type release struct {
	version, commit string
	time            time.Time // of the commit
	out             string
}

// binary is the program for one platform.
type binary struct {
	os, arch, file string
}

func run(ctx context.Context, version, out string, targets []string, tag bool) (err error) {
	r := release{version: version}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if dirty, err := git(ctx, "status", "--porcelain", "--untracked-files=no"); err != nil || dirty != "" {
		return errors.Join(err, fmt.Errorf("the work tree differs from its last commit, which is what is released: commit or stash\n%s", dirty))
	}
	if r.commit, err = git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := git(ctx, "show", "--no-patch", "--format=%ct", "HEAD")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(n, 0).UTC()
	tags, err := released(ctx, root, version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.out), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(r.out, 0o755); err != nil {
		return err
	}
	if err := r.make(ctx, root, targets); err != nil {
		return err
	}
	for _, name := range tags {
		if !tag {
			break
		}
		if _, err := git(ctx, "tag", "--annotate", "--message", name, name); err != nil {
			return err
		}
	}
	fmt.Printf("%s of %.12s is in %s\n", version, r.commit, r.out)
	fmt.Printf("tags, in order of need: git push origin %s\n", strings.Join(tags, " "))
	return nil
}

// released returns the tags of the modules that are released, in order of need: those that others
// use, and not the project's tests and tools.
func released(ctx context.Context, root, version string) (tags []string, err error) {
	modules, err := modproxy.Modules(ctx, root)
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		if top, _, _ := strings.Cut(m.Dir, "/"); top == "test" || top == "tools" {
			continue
		}
		for _, need := range m.Needs {
			if need.Version != version {
				return nil, fmt.Errorf("%s requires %s: set it to %s and commit", m.Path, need, version)
			}
		}
		tags = append(tags, strings.TrimPrefix(m.Dir+"/"+version, "/"))
	}
	return tags, nil
}

func (r release) make(ctx context.Context, root string, targets []string) error {
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	proxy := filepath.Join(work, "proxy")
	if err := modproxy.Publish(ctx, root, proxy, r.version); err != nil {
		return err
	}
	env, err := modproxy.Environment(ctx, proxy, filepath.Join(work, "mod"))
	if err != nil {
		return err
	}
	var linux []binary
	for _, target := range targets {
		b := binary{}
		b.os, b.arch, _ = strings.Cut(target, "/")
		b.file = filepath.Join(r.out, strings.Join([]string{program, r.version, b.os, b.arch}, "-"))
		if err := r.build(ctx, b, env, filepath.Join(work, "go")); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		if b.os == "linux" {
			linux = append(linux, b)
		}
	}
	man, err := r.manual(ctx, env, work)
	if err != nil {
		return err
	}
	for _, b := range linux {
		if err := r.debian(b, man); err != nil {
			return fmt.Errorf("package of Debian for %s: %w", b.arch, err)
		}
	}
	if err := r.image(linux, work); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.sbom(linux); err != nil {
		return fmt.Errorf("SBOM: %w", err)
	}
	return r.checksums()
}

// build builds the program like go install does for a stranger, and puts it at its place.
func (r release) build(ctx context.Context, b binary, env []string, gopath string) error {
	cmd := exec.CommandContext(ctx, "go", "install", "-ldflags", "-s -w -buildid= -X main.commit="+r.commit, modproxy.Root+"/cmd/"+program+"@"+r.version)
	cmd.Env = append(env, "CGO_ENABLED=0", "GOOS="+b.os, "GOARCH="+b.arch, "GOPATH="+gopath, "GOBIN=")
	cmd.Dir = filepath.Dir(r.out) // outside of any module's influence: GOWORK is off, and the version is given
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go install: %w\n%s", err, text)
	}
	built := filepath.Join(gopath, "bin", b.os+"_"+b.arch, program)
	if b.os == runtime.GOOS && b.arch == runtime.GOARCH {
		built = filepath.Join(gopath, "bin", program)
	}
	data, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	return os.WriteFile(b.file, data, 0o755)
}

// manual returns the program's man pages by name.
func (r release) manual(ctx context.Context, env []string, work string) (map[string][]byte, error) {
	host := binary{os: runtime.GOOS, arch: runtime.GOARCH, file: filepath.Join(work, program)}
	if err := r.build(ctx, host, env, filepath.Join(work, "go")); err != nil {
		return nil, err
	}
	docs := filepath.Join(work, "docs")
	cmd := exec.CommandContext(ctx, host.file, "docs", "--out", docs)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10))
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s docs: %w\n%s", program, err, text)
	}
	files, err := filepath.Glob(filepath.Join(docs, "man", "*.1"))
	pages := map[string][]byte{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pages[filepath.Base(file)] = data
	}
	return pages, err
}

// checksums writes SHA256SUMS, which sha256sum --check takes.
func (r release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644)
}

// git returns what a git command prints, without the space around it.
func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
