// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// hasOutput reports whether a command has the flag -o.
func hasOutput(command string) bool {
	return slices.Contains([]string{"run", "stress", "watch", "doctor", "proxy"}, command)
}

// TestDeadMount names paths on a dead mount in every place of the tool: each command ends with 1,
// and names the path and what to do, with -o json in a document, too.
func TestDeadMount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alive := onfake.Socket(t, testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 7}))(t))
	free := filepath.Join(t.TempDir(), "proxy.sock")
	testkit.MountDead(t, dir)
	socket := filepath.Join(dir, "cri.sock")
	kept := filepath.Join(dir, "kept")
	onAlive := []string{"run", "--endpoint", alive, "--image", fakeruntime.WorkloadImage, "--pods", "1"}
	tests := []struct {
		path, setting string
		args          []string
	}{
		{socket, "", []string{"watch", "--endpoint", socket}},
		{socket, "", []string{"run", "--endpoint", socket, "--image", "any"}},
		{socket, "", []string{"stress", "--endpoint", socket, "--image", "any"}},
		{socket, "", []string{"cleanup", "--endpoint", socket}},
		{socket, "", []string{"doctor", "--check", "--endpoint", socket, "--within", "2s"}},
		{socket, "", []string{"fake", "--socket", socket}},
		{socket, "", []string{"proxy", "--endpoint", socket, "--socket", free}},
		{socket, "", []string{"proxy", "--endpoint", alive, "--socket", socket}},
		{kept, "", []string{"compare", kept}},
		{kept, "", []string{"run", "--out", kept}},
		{kept, "", []string{"watch", "--endpoint", alive, "--out", kept}},
		{kept, "", []string{"doctor", "--endpoint", alive, "--out", kept}},
		{dir, "TMPDIR=" + dir, []string{"run"}},
		{dir, "", append(onAlive, "--log-directory", dir)},
		{kept, load.StateVariable + "=" + kept, onAlive},
	}
	var programs []*exec.Cmd
	inJSON := make([]bool, len(tests))
	for n, test := range tests {
		program := exec.Command(os.Args[0])
		program.Args = append([]string{"pleg-bench"}, test.args...)
		inJSON[n] = hasOutput(test.args[0]) && !slices.Contains(test.args, "--check")
		if inJSON[n] {
			program.Args = append(program.Args, "-o", "json")
		}
		if test.setting != "" {
			program.Env = append(os.Environ(), test.setting)
		}
		programs = append(programs, program)
	}
	for n, ended := range testkit.RunTogether(t, endsWithin, programs...) {
		test := tests[n]
		want := "the kernel gives no answer about " + test.path
		said := ended.Stderr
		if !inJSON[n] {
			said += ended.Stdout
		}
		if ended.Status != 1 || !strings.Contains(said, want) {
			t.Errorf("%s %s: status %d, want 1 and %q: %s", test.setting, test.args, ended.Status, want, said)
		}
		if inJSON[n] && !(json.Valid([]byte(ended.Stdout)) && strings.Contains(ended.Stdout, want)) {
			t.Errorf("%s %s: with -o json it printed %q, want one document with %q", test.setting, test.args, ended.Stdout, want)
		}
	}
}
