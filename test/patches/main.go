// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command patches applies each adapter's kubelet.patch to the releases of Kubernetes that it is for, and
// to those that must refuse it, by git apply. It is run in the repository's root, and gets the releases
// from the module registry.
//
//	go run ./test/patches [kubelet136] [kubelet137] [kubelet138]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// patch is what holds of one adapter's patch: the first and the last published release that takes it, and one that
// refuses it.
type patch struct {
	adapter        string
	takes, refuses []string
}

// The patch of 1.38 is that of 1.37 under another name: its first alpha has changed neither of the
// files. So each fits the other's releases, and what refuses it is 1.36.
var patches = []patch{
	{"kubelet136", []string{"v1.36.0", "v1.36.4"}, []string{"v1.37.0"}},
	{"kubelet137", []string{"v1.37.0", "v1.37.1"}, []string{"v1.36.4"}},
	{"kubelet138", []string{"v1.38.0-alpha.0"}, []string{"v1.36.4"}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "patches:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(patches, func(p patch) bool { return p.adapter == name }) {
			return fmt.Errorf("no adapter is called %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "patches")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := everyAdapter(); err != nil {
		return err
	}
	var failed []error
	for _, p := range patches {
		if len(names) > 0 && !slices.Contains(names, p.adapter) {
			continue
		}
		for _, release := range slices.Concat(p.takes, p.refuses) {
			verdict, err := p.try(ctx, filepath.Join(dir, p.adapter+"-"+release), release)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s on %s: %w", p.adapter, release, err))
				verdict = "FAILED"
			}
			fmt.Printf("%s  %-16s %s\n", p.adapter, release, verdict)
		}
	}
	return errors.Join(failed...)
}

// everyAdapter returns an error if an adapter has a patch that nothing is known of here.
func everyAdapter() error {
	files, err := filepath.Glob("embed/*/kubelet.patch")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("no adapter has a patch here: run it in the repository's root")
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if !slices.ContainsFunc(patches, func(p patch) bool { return p.adapter == name }) {
			return fmt.Errorf("%s: say in test/patches which releases take it and which one refuses it", file)
		}
	}
	return nil
}

// try applies the patch to the files of that release which it names, in a folder of their own.
func (p *patch) try(ctx context.Context, dir, release string) (verdict string, err error) {
	diff, err := os.ReadFile(filepath.Join("embed", p.adapter, "kubelet.patch"))
	if err != nil {
		return "", err
	}
	src, err := source(ctx, release)
	if err != nil {
		return "", err
	}
	files := targets(diff)
	if len(files) == 0 {
		return "", errors.New("the patch names no file")
	}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(src, file))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644)); err != nil {
			return "", err
		}
	}
	refused := gitApply(ctx, dir, diff)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case slices.Contains(p.takes, release):
		return "applies", refused
	case refused == nil:
		return "", errors.New("the patch applies, and should be refused: was an adapter forgotten?")
	}
	return "refused, as it should be", nil
}

// gitApply applies a patch as the documents tell to. Git takes no line that differs.
func gitApply(ctx context.Context, dir string, diff []byte) error {
	cmd := exec.CommandContext(ctx, "git", "apply", "-p1", "-")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(diff)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // else git takes the paths for those of a repository around it
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w\n%s", err, out)
	}
	return nil
}

// targets returns the files that a patch changes.
func targets(diff []byte) (files []string) {
	for line := range strings.Lines(string(diff)) {
		if file, ok := strings.CutPrefix(line, "--- a/"); ok {
			files = append(files, strings.TrimSpace(file))
		}
	}
	return files
}

// source returns the folder of the module cache that holds that release of Kubernetes.
func source(ctx context.Context, release string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+release)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download: %w\n%s%s", err, out, stderr.Bytes())
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil || got.Dir == "" {
		return "", fmt.Errorf("go mod download says %q (%w)", out, err)
	}
	return got.Dir, nil
}
