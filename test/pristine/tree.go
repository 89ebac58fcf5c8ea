// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

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
)

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
