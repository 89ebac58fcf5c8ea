// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/bench/run"
)

// fakeServer runs the fake command until the test ends and returns its socket.
func fakeServer(t *testing.T, args ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pf")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "cri.sock")
	cmd := command(t, append([]string{"fake", "--socket", socket}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() || !strings.Contains(lines.Text(), socket) {
		t.Errorf("the fake says %q, want where it listens", lines.Text())
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		for lines.Scan() {
		}
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitOK {
			t.Errorf("the fake ended with %v, want %d at SIGTERM", cmd.ProcessState, exitOK)
		}
		if _, err := os.Lstat(socket); !os.IsNotExist(err) {
			t.Error("the fake left its socket behind")
		}
		_ = os.RemoveAll(dir)
	})
	return socket
}

func TestWatch(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t, "--pods", "3", "--rate", "40")
	o := execCommand(t, "watch", "--endpoint", "unix://"+socket, "--duration", "3s", "-o", "json")
	if o.status != exitOK || !strings.Contains(o.stderr, "events printed") {
		t.Fatalf("status %d, stderr %q", o.status, o.stderr)
	}
	types := make(map[string]int)
	claims := 0
	for line := range strings.Lines(o.stdout) {
		var l struct {
			Type, UID, Pod, Namespace, Source, State string
			Latency                                  *float64 `json:"latency_seconds"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		types[l.Type]++
		if l.Type == "State" {
			continue
		}
		if l.UID == "" || l.Pod == "" || l.Namespace == "" || l.Source != "claim" && l.Source != "read" {
			t.Errorf("event %q lacks something", line)
		}
		if l.Source == "claim" && l.Latency != nil {
			claims++
		}
	}
	for _, want := range []string{"ContainerStarted", "ContainerDied", "ContainerRemoved", "State"} {
		if types[want] == 0 {
			t.Errorf("no line of type %s: %v", want, types)
		}
	}
	if claims == 0 {
		t.Error("no event has a latency")
	}

	text := execCommand(t, "watch", "--endpoint", socket, "--duration", "1s", "--namespace", "default")
	if text.status != exitOK || !strings.Contains(text.stdout, "default/") || strings.Contains(text.stdout, "pleg-bench-churn") {
		t.Errorf("status %d; want events of the namespace default alone:\n%s", text.status, text.stdout)
	}
}

// TestRealEndpoint runs against a fake that is not its child, as it would against a real runtime.
func TestRealEndpoint(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t, "--pods", "3")
	r, o := runJSON(t, "--endpoint", "unix://"+socket, "--image", run.FakeImage)
	if o.status != exitOK || !r.OK || r.Runtime.Profile != "" || r.Events.RuntimeEmitted != nil || r.Latency.Count == 0 || r.Consistency.CheckedPods != 10 {
		t.Errorf("status %d, result %+v, stderr %s", o.status, r, o.stderr)
	}
	list := execCommand(t, "watch", "--endpoint", socket, "--duration", "500ms", "-o", "json")
	if strings.Contains(list.stdout, "pleg-bench-") || strings.Count(list.stdout, `"namespace":"default"`) != 9 {
		t.Errorf("after the run there should be the 3 pods with 2 containers that were there before:\n%s", list.stdout)
	}
	missing := execCommand(t, "run", "--endpoint", socket, "--image", "nobody/has:this", "--duration", "1s")
	if missing.status != exitFailure || !strings.Contains(missing.stderr, "crictl pull") {
		t.Errorf("status %d, stderr %q; want what to do about the image", missing.status, missing.stderr)
	}
}

// TestInterrupt ends a run with Ctrl-C as soon as it works: it must take down its children and remove what it made.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t)
	for name, args := range map[string][]string{
		"fake child":    {"run", "--duration", "1m", "--metrics-addr", "127.0.0.1:0", "-v"},
		"real endpoint": {"run", "--duration", "1m", "--metrics-addr", "127.0.0.1:0", "-v", "--endpoint", socket, "--image", run.FakeImage},
	} {
		for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			t.Run(name+" "+sig.String(), func(t *testing.T) {
				cmd := command(t, args...)
				stderr, err := cmd.StderrPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(stderr)
				var said strings.Builder
				for sent := false; lines.Scan(); {
					said.WriteString(lines.Text() + "\n")
					if !sent && strings.Contains(lines.Text(), "changing pods") {
						sent = true
						if err := cmd.Process.Signal(sig); err != nil {
							t.Error(err)
						}
					}
				}
				_ = cmd.Wait() // after all who hold its standard error have ended: its children too
				if cmd.ProcessState.ExitCode() != exitInterrupted || !strings.Contains(said.String(), "interrupted") {
					t.Errorf("%v, want status %d; stderr:\n%s", cmd.ProcessState, exitInterrupted, said.String())
				}
			})
		}
	}
	left := execCommand(t, "watch", "--endpoint", socket, "--duration", "500ms", "-o", "json")
	if strings.Contains(left.stdout, "pleg-bench-") {
		t.Errorf("pods were left on the runtime:\n%s", left.stdout)
	}
}
