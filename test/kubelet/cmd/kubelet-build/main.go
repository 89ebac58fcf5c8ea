// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubelet-build builds kubelets from the module registry: for each release the stock
// kubelet, and a kubelet from the same tree with this PLEG installed. Run it in the repository's
// root.
//
//	go run ./test/kubelet/cmd/kubelet-build [-out build/kubelet] [-evented] [-suite]
//		[-with MODULE=VERSION] [RELEASE...]
//
// The trees stay in the output folder, as v1.36.3 and the like, with the PLEG installed. -suite
// also builds the release's node e2e tests, in suite-v1.36.3 and the like. -with takes a module at
// another version than the release's, for a release with unavailable modules.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/pristine"
)

func main() {
	out := flag.String("out", "build/kubelet", "where trees and binaries go")
	evented := flag.Bool("evented", false, "only those with this PLEG")
	trees := flag.Bool("trees", false, "no binaries: only the trees, with this PLEG installed")
	suite := flag.Bool("suite", false, "also the release's node e2e tests")
	var with []string
	flag.Func("with", "`MODULE=VERSION`: take that module at that version, whatever the release names; may be repeated", func(v string) error {
		module, version, ok := strings.Cut(v, "=")
		if !ok || module == "" || version == "" {
			return fmt.Errorf("%q is not of the form MODULE=VERSION", v)
		}
		with = append(with, "-replace="+module+"="+module+"@"+version)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	releases := flag.Args()
	if len(releases) == 0 {
		releases = []string{"1.36.3", "1.37.1"}
	}
	for _, release := range releases {
		b := build{release: release, tree: filepath.Join(*out, "v"+release), with: with, suite: *suite}
		if err := b.run(ctx, *evented, *trees); err != nil {
			fmt.Fprintf(os.Stderr, "kubelet-build: %s: %v\n", release, err)
			os.Exit(1)
		}
	}
}

// build is the build of a release's kubelets.
type build struct {
	release, tree string
	with          []string // flags of go mod edit
	suite         bool
}

func (b *build) run(ctx context.Context, evented, trees bool) error {
	if err := pristine.Tree(ctx, b.release, b.tree); err != nil {
		return err
	}
	if len(b.with) > 0 {
		if err := command(ctx, b.tree, "go", append([]string{"mod", "edit"}, b.with...)...); err != nil {
			return err
		}
	}
	install := func(flags ...string) error {
		return command(ctx, ".", "go", append([]string{"run", "./embed/install", "-kubernetes", b.tree}, flags...)...)
	}
	if b.suite || !evented && !trees {
		if _, err := os.Stat(filepath.Join(b.tree, "pkg/kubelet/pleg/evented")); err == nil {
			if err := install("-remove"); err != nil {
				return err
			}
		}
	}
	if !evented && !trees {
		if err := b.link(ctx, "stock"); err != nil {
			return err
		}
	}
	if b.suite {
		if err := b.tests(ctx); err != nil {
			return err
		}
	}
	if err := install(); err != nil || trees {
		return err
	}
	return b.link(ctx, "evented")
}

// link builds the tree's kubelet.
func (b *build) link(ctx context.Context, kind string) error {
	file := filepath.Join(filepath.Dir(b.tree), "kubelet-v"+b.release+"-"+kind)
	fmt.Println(file)
	return b.program(ctx, file, "./cmd/kubelet", "build")
}

// tests builds the stock tree's node e2e tests, and the programs in their images.
func (b *build) tests(ctx context.Context) error {
	dir := filepath.Join(filepath.Dir(b.tree), "suite-v"+b.release)
	fmt.Println(dir)
	pause, err := filepath.Abs(filepath.Join(dir, "pause"))
	return errors.Join(err,
		b.program(ctx, filepath.Join(dir, "e2e_node.test"), "./test/e2e_node", "test", "-c", "-vet=off"),
		b.program(ctx, filepath.Join(dir, "ginkgo"), "github.com/onsi/ginkgo/v2/ginkgo", "build"),
		b.program(ctx, filepath.Join(dir, "agnhost"), "./test/images/agnhost", "build"),
		command(ctx, b.tree, "gcc", "-Os", "-static", "-DVERSION=v"+b.release, "-o", pause, "build/pause/linux/pause.c"))
}

// program builds a package of the tree under the release's own number, because a kubelet reports
// the number and derives its gates from it. The flags leave the build cache to be shared with tests
// in the tree.
func (b *build) program(ctx context.Context, file, pkg string, verb ...string) error {
	parts := strings.SplitN(b.release, ".", 3)
	if len(parts) != 3 {
		return fmt.Errorf("the release is not of the form 1.2.3")
	}
	const version = "-X k8s.io/component-base/version."
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	return command(ctx, b.tree, "go", append(verb, "-mod=mod", "-o", abs, "-ldflags",
		"-s -w "+version+"gitVersion=v"+b.release+" "+version+"gitMajor="+parts[0]+" "+version+"gitMinor="+parts[1], pkg)...)
}

// command runs a command in a folder. In a tree there is no workspace.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, os.Environ()
	if dir != "." {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOWORK=off")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
