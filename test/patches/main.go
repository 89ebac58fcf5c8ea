// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command patches installs the evented PLEG into releases of Kubernetes that it is for, and into
// one that it must refuse, and removes it again. It is run in the repository's root, and gets the
// releases from the module registry. Nothing is built.
//
//	go run ./test/patches [RELEASE...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/pristine"
)

// The first and the last published release of each minor, and one of the minor before.
var (
	takes   = []string{"1.36.0", "1.36.4", "1.37.0", "1.37.1", "1.38.0-alpha.0"}
	refuses = []string{"1.35.0"}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "patches:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, releases []string) error {
	dir, err := os.MkdirTemp("", "patches")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	install := filepath.Join(dir, "install")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", install, "./embed/install").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	if len(releases) == 0 {
		releases = slices.Concat(takes, refuses)
	}
	var failed []error
	for _, release := range releases {
		verdict, err := try(ctx, install, filepath.Join(dir, release), release)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", release, err))
			verdict = "FAILED"
		}
		fmt.Printf("%-16s %s\n", release, verdict)
	}
	return errors.Join(failed...)
}

// needed are the files of a tree that the installation reads or changes.
var needed = []string{"pkg/kubelet/kubelet.go", "pkg/kubelet/pleg/pleg.go", "hack/boilerplate/boilerplate.go.txt"}

// try installs into a tree of the needed files, and removes.
func try(ctx context.Context, install, tree, release string) (verdict string, err error) {
	src, err := pristine.Source(ctx, release)
	if err != nil {
		return "", err
	}
	before := make(map[string]string)
	for _, name := range needed {
		text, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", err
		}
		before[name] = string(text)
		file := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil {
			return "", err
		}
	}
	out, err := exec.CommandContext(ctx, install, "-kubernetes", tree).CombinedOutput()
	switch {
	case slices.Contains(refuses, release) && err == nil:
		return "", errors.New("installed, and should be refused")
	case slices.Contains(refuses, release) && strings.Contains(string(out), "supported minor"):
		return "refused, as it should be", nil
	case err != nil:
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if out, err := exec.CommandContext(ctx, install, "-kubernetes", tree, "-remove").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	for name, text := range before {
		if got, err := os.ReadFile(filepath.Join(tree, name)); err != nil || string(got) != text {
			return "", fmt.Errorf("%s is not as it was (%w)", name, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tree, "pkg/kubelet/pleg/*")); err != nil || len(left) != 1 {
		return "", fmt.Errorf("left behind: %q (%w)", left, err)
	}
	return "installs, and leaves nothing behind", nil
}
