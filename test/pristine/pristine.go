// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package pristine makes builds of Kubernetes releases with the versions that the release itself
// names, and no others: a program that is measured beside ours, or that takes ours, must not be
// built with what our modules require.
package pristine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// Module returns the text of go.mod and go.sum with which a release of Kubernetes (without the v)
// can be built from its module, which is in dir: those of the release, with the staging modules as
// they were published, because the module does not contain them. Their sums are not in go.sum.
func Module(dir, release string) (mod, sum []byte, err error) {
	minor, ok := strings.CutPrefix(release, "1.")
	if !ok {
		return nil, nil, fmt.Errorf("release %q of Kubernetes is none of v1", release)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, nil, err
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range slices.Clone(file.Replace) {
		if !strings.HasPrefix(r.New.Path, "./staging/") {
			continue
		}
		switch path := r.Old.Path; path { // DropReplace empties r
		case "k8s.io/sample-controller", "k8s.io/sample-cli-plugin": // nobody's dependency
			err = errors.Join(err, file.DropReplace(path, r.Old.Version), file.DropRequire(path))
		default:
			err = errors.Join(err, file.AddReplace(path, r.Old.Version, path, "v0."+minor))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	file.Cleanup()
	if mod, err = file.Format(); err != nil {
		return nil, nil, err
	}
	sum, err = os.ReadFile(filepath.Join(dir, "go.sum"))
	return mod, sum, err
}

// Source returns the folder of the module cache with a release of Kubernetes (without the v), which
// it downloads if necessary.
func Source(ctx context.Context, release string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes@v"+release)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
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

// Tree makes a source tree of a release in dir, with the go.mod of [Module], unless it is there.
func Tree(ctx context.Context, release, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "go.sum")); err == nil { // written last
		return nil
	}
	src, err := Source(ctx, release)
	if err != nil {
		return err
	}
	mod, sum, err := Module(src, release)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(src))); err != nil {
		return err
	}
	return errors.Join(
		os.Remove(filepath.Join(dir, "go.work")), os.Remove(filepath.Join(dir, "go.work.sum")), os.Remove(filepath.Join(dir, "go.sum")),
		os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o644), os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644))
}
