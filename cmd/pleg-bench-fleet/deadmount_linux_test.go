// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestDeadMount names a kubeconfig on a dead mount, and one that takes the server's certificate
// from there: the program ends with 1, and names the path.
func TestDeadMount(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	certificate := testkit.KubeconfigWith(t, kept)
	testkit.MountDead(t, dir)
	for _, path := range []string{kept, certificate} {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		program := exec.CommandContext(ctx, os.Args[0], "run", "--kubeconfig", path, "--nodes", "a=b",
			"--job-image", "example.local/pleg-bench:1")
		program.Env = append(os.Environ(), asProgram+"=1", "HOME="+t.TempDir())
		var said bytes.Buffer
		program.Stdout = &said
		program.Stderr = &said
		_ = program.Run() // the status tells
		cancel()
		status := program.ProcessState.ExitCode()
		want := "--kubeconfig: the kernel gives no answer about " + kept
		if status != 1 || !strings.Contains(said.String(), want) {
			t.Errorf("--kubeconfig %s: status %d, want 1 and %q: %.500s", path, status, want, said.String())
		}
	}
}
