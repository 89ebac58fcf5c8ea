// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestDeadMount names paths on a dead mount in every place of the agent: the agent ends with 1, and
// names the path and what to do. A usual socket on such a mount is passed by.
func TestDeadMount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alive := filepath.Join(t.TempDir(), "cri.sock")
	listener := testkit.Must(net.Listen("unix", alive))(t)
	defer listener.Close()
	kept := filepath.Join(dir, "kept")
	certificate := testkit.KubeconfigWith(t, kept)
	testkit.MountDead(t, dir)
	dead := "the kernel gives no answer about "
	onAlive := []string{"--node", "n", "--endpoint", alive}
	tests := []struct {
		name    string
		setting string
		args    []string
		status  int
		says    string
	}{
		{"config", "", []string{"--config", kept, "--print", "--endpoint", alive}, 1, "--config: " + dead + kept},
		{"endpoint", "", []string{"--print", "--endpoint", kept}, 1, "--endpoint: " + dead + kept},
		{"its variable", endpointVariable + "=unix://" + kept, []string{"--print"}, 1, "--endpoint: " + dead + kept},
		{"kubeconfig", "", append(onAlive, "--kubeconfig", kept), 1, "--kubeconfig: " + dead + kept},
		{"its default", "KUBECONFIG=" + alive + ":" + kept, onAlive, 1, "--kubeconfig: " + dead + kept},
		{"certificate", "", append(onAlive, "--kubeconfig", certificate), 1, "--kubeconfig: " + dead + kept},
		{"state", "", append(onAlive, "--print", "--state", kept), 2, "its disk hangs"},
		{"a socket", deadSockets + "=" + kept + "," + alive, []string{"--print", "--duration", "1ms"}, 1, "no list of the runtime at unix://" + alive},
		{"all sockets", deadSockets + "=" + kept, []string{"--print"}, 2, "none of the usual sockets exists"},
	}
	var programs []*exec.Cmd
	for _, test := range tests {
		program := exec.Command(os.Args[0], test.args...)
		program.Env = append(os.Environ(), asProgram+"=1", "HOME="+t.TempDir(), test.setting)
		programs = append(programs, program)
	}
	for n, ended := range testkit.RunTogether(t, 30*time.Second, programs...) {
		test := tests[n]
		said := ended.Stdout + ended.Stderr
		if ended.Status != test.status || !strings.Contains(said, test.says) {
			t.Errorf("%s: status %d, want %d and %q: %.500s", test.name, ended.Status, test.status, test.says, said)
		}
	}
}

// TestAMountThatDies: the mount with the ledger dies while the agent runs. Ends are told all the
// same, and the agent ends when it is asked to, and names the ledger.
func TestAMountThatDies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "reported.json")
	testkit.OwnMounts(t)
	program := exec.CommandContext(t.Context(), os.Args[0], "--fake", "--node", "n", "--state", state)
	program.Env = append(os.Environ(), asProgram+"=1")
	var told, said notes
	program.Stdout = &told
	program.Stderr = &said
	testkit.Check(t, program.Start())
	hung := time.AfterFunc(time.Minute, func() { _ = program.Process.Kill() })
	defer hung.Stop()
	until := func(what string, holds func() bool) {
		for limit := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%s: %s%s", what, told.String(), said.String())
			}
		}
	}
	until("no ledger", func() bool {
		kept, err := os.ReadFile(state)
		return err == nil && bytes.Contains(kept, []byte(`"reported":{"`))
	})
	testkit.CoverDead(t, dir)
	lines := strings.Count(told.String(), "\n")
	until("no end is told without the ledger", func() bool { return strings.Count(told.String(), "\n") > lines+1 })
	testkit.Check(t, program.Process.Signal(syscall.SIGTERM))
	_ = program.Wait() // the status tells
	if status := program.ProcessState.ExitCode(); status != cli.ExitInterrupted {
		t.Errorf("status %d, want %d: %s", status, cli.ExitInterrupted, said.String())
	}
	testkit.Says(t, "the agent", said.String(), state, "its disk hangs")
	if n := strings.Count(said.String(), "its disk hangs"); n != 1 {
		t.Errorf("it is said %d times, want once: %s", n, said.String())
	}
}
