// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command install puts the evented PLEG into a source tree of Kubernetes, as packages of the tree,
// and patches the kubelet. It is run in this repository.
//
//	go run ./embed/install -kubernetes DIR [-remove]
//
// The packages go to pkg/kubelet/pleg/evented. Their imports are rewritten, and nothing else of the
// tree changes but pkg/kubelet/kubelet.go: no go.mod, no vendor folder. On a tree that has the PLEG
// install upgrades, and discards changes made in pkg/kubelet/pleg/evented. With -remove the tree is
// again as it was.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"syscall"
)

const (
	module = "github.com/evented-pleg/evented-pleg"
	into   = "pkg/kubelet/pleg/evented" // in the tree
	// applied is the patch of an installed PLEG, kept in into, so that an upgrade or a removal takes
	// back what was applied and not what is applied today.
	applied = "kubelet.patch"
)

func main() {
	tree := flag.String("kubernetes", "", "`DIR` of a Kubernetes source tree")
	remove := flag.Bool("remove", false, "remove the PLEG from the tree")
	flag.Parse()
	if *tree == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "install: say which tree: go run ./embed/install -kubernetes DIR [-remove]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	act, done := install, "is in"
	if *remove {
		act, done = uninstall, "is removed from"
	}
	if err := act(ctx, *tree); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
	fmt.Printf("the evented PLEG %s %s\n", done, *tree)
}

// install installs or upgrades. A tree without the PLEG is changed only once the patch is known to
// fit. An upgrade takes the old PLEG out first.
func install(ctx context.Context, tree string) error {
	minor, err := minorOf(tree)
	if err != nil {
		return err
	}
	files, err := sources(minor, boilerplate(tree))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(tree, into, applied)); err == nil {
		if err := uninstall(ctx, tree); err != nil {
			return err
		}
	} else if _, err := os.Stat(filepath.Join(tree, into)); err == nil {
		return fmt.Errorf("%s is there, and has no %s: it is not from here; remove it first", filepath.Join(tree, into), applied)
	}
	patch := files[applied]
	if err := gitApply(ctx, tree, patch, "--check"); err != nil {
		return fmt.Errorf("the patch does not fit the tree: %w", err)
	}
	for name, text := range files {
		file := filepath.Join(tree, into, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil {
			return err
		}
	}
	return gitApply(ctx, tree, patch)
}

// uninstall takes back the applied patch and removes the packages.
func uninstall(ctx context.Context, tree string) error {
	patch, err := os.ReadFile(filepath.Join(tree, into, applied))
	if err != nil {
		return fmt.Errorf("the tree has no PLEG from here: %w", err)
	}
	if err := gitApply(ctx, tree, patch, "-R"); err != nil {
		return fmt.Errorf("the patched lines have been changed since; take back %s by hand and remove %s: %w",
			path.Join(into, applied), into, err)
	}
	return os.RemoveAll(filepath.Join(tree, into))
}

// gitApply applies a patch without tolerance for other lines, which GNU patch has.
func gitApply(ctx context.Context, tree string, patch []byte, flags ...string) error {
	abs, err := filepath.Abs(tree)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply", "-p1"}, append(flags, "-")...)...)
	cmd.Dir, cmd.Stdin = abs, bytes.NewReader(patch)
	cmd.Env = append(os.Environ(), "GIT_DIR=/dev/null") // else the paths are taken for those of a repository around the tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w\n%s", err, out)
	}
	return nil
}
