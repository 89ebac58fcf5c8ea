// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command consumers adds this repository's modules to programs with dependencies of their own, and
// fails when any of these is raised, or when a foreign module is added. Run it in the repository.
//
//	go run ./test/consumers [-v] [-build] [NAME...]
//
// The consumers get the committed state as users do: from a module proxy, here a folder, as version
// [version]. No replace line of ours helps them. They are pristine: an agent on client-go 0.35 and
// gRPC 1.72, a controller on controller-runtime 0.22, and the go.mod of Kubernetes releases. The
// tool is installed as a user installs it.
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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/modproxy"
)

const (
	module = modproxy.Root
	// version is the version by which our modules name each other: the next release's.
	version = "v0.1.0"
)

func main() {
	verbose := flag.Bool("v", false, "print what every consumer requires in the end")
	build := flag.Bool("build", false, "build the agents and the controller too, which takes minutes: .ci/oldest compiles the libraries already")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *verbose, *build, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "consumers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, verbose, build bool, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(consumers, func(c consumer) bool { return c.name == name }) {
			return fmt.Errorf("no consumer is called %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "consumers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	clone := filepath.Join(dir, "clone") // of the committed files, without others in the folder
	if out, err := exec.CommandContext(ctx, "git", "clone", "--quiet", "--shared", root, clone).CombinedOutput(); err != nil {
		return fmt.Errorf("git clone: %w\n%s", err, out)
	}
	if err := modproxy.Publish(ctx, clone, filepath.Join(dir, "proxy"), version); err != nil {
		return err
	}
	w := workshop{dir: dir, build: build}
	if w.env, err = modproxy.Environment(ctx, filepath.Join(dir, "proxy"), filepath.Join(dir, "mod")); err != nil {
		return err
	}
	var failed []error
	for _, c := range consumers {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		began := time.Now()
		after, err := c.try(ctx, &w)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		verdict := "nothing raised, nothing added"
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
			verdict = "FAILED: " + err.Error()
		}
		fmt.Printf("%-22s %5.1fs  %s\n", c.name, time.Since(began).Seconds(), verdict)
		if verbose {
			fmt.Println(strings.Join(after.lines(), "\n"))
		}
	}
	return errors.Join(failed...)
}

// repository returns the folder of the repository.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("run it within the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// workshop is where consumers are made.
type workshop struct {
	dir   string
	env   []string
	build bool // build the result
}

// goCommand runs the go command in the folder and returns its output.
func (w *workshop) goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, w.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, lastLines(stderr.String(), 12))
	}
	return stdout.String(), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// runs calls an installed program for its help.
func runs(ctx context.Context, program string) error {
	out, err := exec.CommandContext(ctx, program, "--help").CombinedOutput()
	if err == nil && len(out) == 0 {
		err = errors.New("it printed nothing")
	}
	if err != nil {
		return fmt.Errorf("%s --help: %w\n%s", filepath.Base(program), err, lastLines(string(out), 5))
	}
	return nil
}
