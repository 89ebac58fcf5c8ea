// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	paths := []string{kept, certificate}
	var programs []*exec.Cmd
	for _, path := range paths {
		program := exec.Command(os.Args[0], "run", "--kubeconfig", path, "--nodes", "a=b",
			"--job-image", "example.local/pleg-bench:1")
		program.Env = append(os.Environ(), asProgram+"=1", "HOME="+t.TempDir())
		programs = append(programs, program)
	}
	for n, ended := range testkit.RunTogether(t, 30*time.Second, programs...) {
		said := ended.Stdout + ended.Stderr
		want := "--kubeconfig: the kernel gives no answer about " + kept
		if ended.Status != 1 || !strings.Contains(said, want) {
			t.Errorf("--kubeconfig %s: status %d, want 1 and %q: %.500s", paths[n], ended.Status, want, said)
		}
	}
}
