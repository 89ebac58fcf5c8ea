// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
	"github.com/evented-pleg/evented-pleg/internal/cli"
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
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != cli.ExitOK {
			t.Errorf("the fake ended with %v, want %d at SIGTERM", cmd.ProcessState, cli.ExitOK)
		}
		if _, err := os.Lstat(socket); !os.IsNotExist(err) {
			t.Error("the fake left its socket behind")
		}
		_ = os.RemoveAll(dir)
	})
	return socket
}

// TestFindEndpoint looks where crictl does.
func TestFindEndpoint(t *testing.T) {
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	defer func(before []string) { usualSockets = before }(usualSockets)
	for _, test := range []struct{ flag, variable, usual, want string }{
		{"/flag", "/variable", socket, "/flag"},
		{"", "/variable", socket, "/variable"},
		{"", "", socket, "unix://" + socket},
		{"", "", dir, ""}, // no socket
	} {
		t.Setenv(endpointVariable, test.variable)
		usualSockets = []string{"/nowhere/cri.sock", test.usual}
		got, err := findEndpoint(test.flag)
		if usage := cli.IsUsage(err); got != test.want || usage != (test.want == "") {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t, "--pods", "3", "--rate", "40")
	o := execCommand(t, "watch", "--endpoint", "unix://"+socket, "--duration", "3s", "-o", "json")
	if o.status != cli.ExitOK || o.stderr != "" {
		t.Fatalf("status %d, stderr %q: want nothing beside the JSON", o.status, o.stderr)
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
		if l.Type == "State" || l.Type == "Summary" {
			continue
		}
		if l.UID == "" || l.Pod == "" || l.Namespace == "" || l.Source != "claim" && l.Source != "read" {
			t.Errorf("event %q lacks something", line)
		}
		if l.Source == "claim" && l.Latency != nil {
			claims++
		}
	}
	for _, want := range []string{"ContainerStarted", "ContainerDied", "ContainerRemoved", "State", "Summary"} {
		if types[want] == 0 {
			t.Errorf("no line of type %s: %v", want, types)
		}
	}
	if claims == 0 {
		t.Error("no event has a latency")
	}

	raw := execCommand(t, "watch", "--endpoint", socket, "--duration", "2s", "--raw")
	for _, want := range []string{"EVENT", "STARTED", "sandbox", "RUNNING"} {
		if raw.status != cli.ExitOK || !strings.Contains(raw.stdout, want) {
			t.Errorf("--raw: status %d, want %q in:\n%s", raw.status, want, raw.stdout)
		}
	}
	if o := execCommand(t, "watch", "--endpoint", socket, "--duration", "1s", "--expect", "lists=0"); o.status != cli.ExitUnmet || !strings.Contains(o.stderr, "expected lists=0") {
		t.Errorf("a bound that is not kept: status %d, want %d; %s", o.status, cli.ExitUnmet, o.stderr)
	}
	text := execCommand(t, "watch", "--endpoint", socket, "--duration", "1s", "--namespace", "default")
	if text.status != cli.ExitOK || !strings.Contains(text.stdout, "default/") || strings.Contains(text.stdout, "pleg-bench-churn") {
		t.Errorf("status %d; want events of the namespace default alone:\n%s", text.status, text.stdout)
	}
}

// TestRealEndpoint runs against a fake in another process, in place of a real runtime.
func TestRealEndpoint(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t, "--pods", "3")
	r, o := runJSON(t, "--endpoint", "unix://"+socket, "--image", run.FakeImage, "--beside-kubelet")
	if o.status != cli.ExitOK || !r.OK || r.Runtime.Profile != "" || r.Events.RuntimeEmitted != nil || r.Latency.Count == 0 || r.Consistency.CheckedPods != 10 {
		t.Errorf("status %d, result %+v, stderr %s", o.status, r, o.stderr)
	}
	list := execCommand(t, "watch", "--endpoint", socket, "--duration", "500ms", "-o", "json")
	if strings.Contains(list.stdout, "pleg-bench-") || strings.Count(list.stdout, `"namespace":"default"`) != 9 {
		t.Errorf("after the run there should be the 3 pods with 2 containers that were there before:\n%s", list.stdout)
	}
	missing := execCommand(t, "run", "--endpoint", socket, "--image", "nobody/has:this", "--duration", "1s", "--beside-kubelet")
	if missing.status != cli.ExitFailure || !strings.Contains(missing.stderr, "crictl pull") {
		t.Errorf("status %d, stderr %q; want what to do about the image", missing.status, missing.stderr)
	}
}

// TestUsedRuntime wants a load refused on a runtime with foreign pods.
func TestUsedRuntime(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t, "--pods", "5")
	for _, command := range []string{"run", "stress"} {
		o := execCommand(t, command, "--endpoint", socket, "--image", run.FakeImage)
		if o.status != cli.ExitUsage || o.stdout != "" {
			t.Errorf("%s: status %d, want %d; stdout %q", command, o.status, cli.ExitUsage, o.stdout)
		}
		for _, want := range []string{"holds 5 pods", "default/", "kubelet", "--beside-kubelet"} {
			if !strings.Contains(o.stderr, want) {
				t.Errorf("%s: the reason %q lacks %q", command, o.stderr, want)
			}
		}
	}
	if o := execCommand(t, "cleanup", "--endpoint", socket, "--all"); o.status != cli.ExitOK || !strings.Contains(o.stdout, "nothing of pleg-bench") {
		t.Errorf("a refused run leaves nothing: status %d, %s%s", o.status, o.stdout, o.stderr)
	}
}

// endsWithin is how long a command may take to end once its end was asked for.
const endsWithin = 90 * time.Second

// startUntil starts a command and returns the command at the first line of its standard error with
// the text, and a reader of the rest, which must end within endsWithin.
func startUntil(t *testing.T, text string, args ...string) (cmd *exec.Cmd, rest func() string) {
	t.Helper()
	cmd = command(t, args...)
	return cmd, follow(t, cmd, text)
}

// follow is startUntil for an existing command.
func follow(t *testing.T, cmd *exec.Cmd, text string) (rest func() string) {
	t.Helper()
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	var said strings.Builder
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), text) {
			return func() string {
				defer time.AfterFunc(endsWithin, func() {
					t.Errorf("%v has not ended within %v: killed", cmd.Args, endsWithin)
					_ = cmd.Process.Kill()
				}).Stop()
				for lines.Scan() {
					said.WriteString(lines.Text() + "\n")
				}
				_ = cmd.Wait() // after all who hold its standard error have ended: its children too
				return said.String() + stdout.String()
			}
		}
	}
	_ = cmd.Wait()
	t.Fatalf("%v ended before it said %q:\n%s", cmd.Args, text, said.String())
	return nil
}

// TestKilledRun kills runs with signal 9: the next run and cleanup remove their leftovers, logs
// included, and spare a living run.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t)
	logs := t.TempDir()
	args := []string{"run", "--endpoint", socket, "--image", run.FakeImage, "--log-directory", logs, "--pods", "4", "--duration", "1m", "-v"}
	kill := func() {
		t.Helper()
		cmd, rest := startUntil(t, "changing pods", args...)
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		rest()
	}
	cleanup := func(args ...string) string {
		t.Helper()
		o := execCommand(t, append([]string{"cleanup", "--endpoint", socket}, args...)...)
		if o.status != cli.ExitOK {
			t.Errorf("cleanup %v: status %d, %s", args, o.status, o.stderr)
		}
		return o.stdout
	}
	kill()
	if said := cleanup("--dry-run"); !strings.Contains(said, "whose process has ended: 4 pods: would be removed") {
		t.Errorf("cleanup --dry-run says %q", said)
	}
	if said := cleanup(); !strings.Contains(said, "4 pods: removed") {
		t.Errorf("cleanup says %q", said)
	}
	kill()
	alive, rest := startUntil(t, "changing pods", args...)
	if said := cleanup(); !strings.Contains(said, "process is running") || !strings.Contains(said, "left alone") {
		t.Errorf("beside a run that goes on, cleanup says %q", said)
	}
	if err := alive.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if said := rest(); strings.Count(said, "removing 4 pods that run") != 1 {
		t.Errorf("the next run does not say what it removes:\n%s", said)
	}
	if said := cleanup("--all"); !strings.Contains(said, "nothing of pleg-bench") {
		t.Errorf("in the end the runtime holds something: %s", said)
	}
	if left, err := os.ReadDir(logs); err != nil || len(left) > 0 {
		t.Errorf("log folders are left: %v (%v)", left, err)
	}
}

// TestDisturbedRun disturbs a run by a runtime that fails every change, as on a full disk, and by
// pods of others. The errors and the leftovers are named, and the named command removes the
// leftovers once changes succeed.
func TestDisturbedRun(t *testing.T) {
	t.Parallel()
	disturbed := func(disturb func(*fakeruntime.Runtime)) (rt *fakeruntime.Runtime, said string) {
		rt, err := fakeruntime.New(fakeruntime.Config{})
		if err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("", "pd")
		if err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(dir, "cri.sock")
		lis, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- rt.Serve(ctx, lis) }()
		t.Cleanup(func() {
			stop()
			if err := errors.Join(<-served, os.RemoveAll(dir)); err != nil {
				t.Error(err)
			}
			rt.Close()
		})
		_, rest := startUntil(t, "changing pods", "run", "--endpoint", socket, "--image", run.FakeImage, "--pods", "3", "--rate", "50", "--duration", "3s", "-v")
		disturb(rt)
		return rt, strings.Join(strings.Fields(rest()), " ")
	}
	rt, said := disturbed(func(rt *fakeruntime.Runtime) {
		if err := rt.SetFaults(fakeruntime.Faults{FailWrite: 1}); err != nil {
			t.Error(err)
		}
	})
	command := regexp.MustCompile(`"pleg-bench (cleanup --endpoint \S+ --run \S+)" removes them`).FindStringSubmatch(said)
	if command == nil || !strings.Contains(said, ", first: virtual failure of ") {
		t.Fatalf("the errors or the command that removes what is left are not named:\n%s", said)
	}
	if err := rt.SetFaults(fakeruntime.Faults{}); err != nil {
		t.Fatal(err)
	}
	if o := execCommand(t, strings.Fields(command[1])...); o.status != cli.ExitOK || !strings.Contains(o.stdout, ": removed") || len(rt.Truth().Pods) > 0 {
		t.Errorf("%s: status %d, %d pods are left: %s%s", command[1], o.status, len(rt.Truth().Pods), o.stdout, o.stderr)
	}
	_, said = disturbed(func(rt *fakeruntime.Runtime) {
		if _, err := rt.Populate(fakeruntime.Population{Pods: 1, Containers: 1}); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(said, "NO VERDICT: pods that pleg-bench has not made came during the run (default/") {
		t.Errorf("the pods of others are not named:\n%s", said)
	}
}

// TestNoRuntimeBehindTheSocket wants a name for a foreign server behind the socket, for a gRPC
// server without the CRI, and for no socket.
func TestNoRuntimeBehindTheSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "pn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	other, bare := filepath.Join(dir, "http.sock"), filepath.Join(dir, "grpc.sock")
	serve := func(path string, serve func(net.Listener) error, stop func()) {
		lis, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = serve(lis)
		}()
		t.Cleanup(func() {
			stop()
			<-done
		})
	}
	web, server := &http.Server{}, grpc.NewServer()
	serve(other, web.Serve, func() { _ = web.Close() })
	serve(bare, server.Serve, server.Stop)
	for socket, want := range map[string]string{other: "not as a container runtime", bare: "CRI plugin", "/nowhere/cri.sock": "there is no socket /nowhere/cri.sock"} {
		for _, args := range [][]string{{"watch"}, {"run", "--image", "x"}, {"cleanup"}} {
			o := execCommand(t, append(args, "--endpoint", socket)...)
			if o.status != cli.ExitFailure || strings.Count(o.stderr, want) != 1 {
				t.Errorf("%v on %s: status %d, %q; want %d and %q", args, socket, o.status, o.stderr, cli.ExitFailure, want)
			}
		}
	}
}

// TestInterrupt ends working runs with each signal: they must print their measurements, take down
// their children and remove their pods.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	socket := fakeServer(t)
	for name, args := range map[string][]string{
		"fake child":    {"run", "--duration", "1m", "--metrics-addr", "127.0.0.1:0", "-v"},
		"real endpoint": {"run", "--duration", "1m", "--metrics-addr", "127.0.0.1:0", "-v", "--endpoint", socket, "--image", run.FakeImage},
		"stress":        {"stress", "-v", "--endpoint", socket, "--image", run.FakeImage, "--step", "1m"},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(name+" "+sig.String(), func(t *testing.T) {
				until, summary := "changing pods", "NO VERDICT: the run was interrupted"
				if name == "stress" {
					until, summary = "containers/s", "interrupted: the user ended the test"
				}
				cmd, rest := startUntil(t, until, args...)
				if err := cmd.Process.Signal(sig); err != nil {
					t.Error(err)
				}
				if sig == syscall.SIGHUP { // shells repeat the terminal's
					_ = cmd.Process.Signal(sig)
				}
				said := rest()
				if cmd.ProcessState.ExitCode() != cli.ExitInterrupted || !strings.Contains(said, "pleg-bench: interrupted ("+sig.String()+")") {
					t.Errorf("%v, want status %d; it said:\n%s", cmd.ProcessState, cli.ExitInterrupted, said)
				}
				if !strings.Contains(said, summary) {
					t.Errorf("the summary does not say %q:\n%s", summary, said)
				}
			})
		}
	}
	if o := execCommand(t, "cleanup", "--endpoint", socket, "--all"); o.status != cli.ExitOK || !strings.Contains(o.stdout, "nothing of pleg-bench") {
		t.Errorf("pods were left on the runtime:\n%s%s", o.stdout, o.stderr)
	}
}

// TestNohup hangs up on a run started with hangups ignored: the run goes on to its verdict.
func TestNohup(t *testing.T) {
	t.Parallel()
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "run", "--pods", "3", "--duration", "1s", "--compare=false", "-v")
	cmd.Path, cmd.Args = nohup, append([]string{"nohup"}, cmd.Args...)
	rest := follow(t, cmd, "changing pods")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	if said := rest(); cmd.ProcessState.ExitCode() != cli.ExitOK || !strings.Contains(said, "PASS") {
		t.Errorf("%v, want status %d and a verdict; it said:\n%s", cmd.ProcessState, cli.ExitOK, said)
	}
}

// TestUnwritableFolder loses only the stored result.
func TestUnwritableFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, rest := startUntil(t, "changing pods", "-v", "--pods", "3", "--duration", "1s", "--compare=false", "--out", filepath.Join(dir, "x"))
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	said := rest()
	if cmd.ProcessState.ExitCode() != cli.ExitFailure || !strings.Contains(said, "PASS") || !strings.Contains(said, "--out: ") {
		t.Errorf("%v; want the summary, the reason, and status %d:\n%s", cmd.ProcessState, cli.ExitFailure, said)
	}
}
