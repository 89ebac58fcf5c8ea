// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// asCommand makes the test binary the command itself, children included, so that the tests need no build and see races everywhere.
const asCommand = "PLEG_BENCH_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if signal.Ignored(syscall.SIGHUP) {
		// CI was started with nohup, and every command would inherit that and go on at the tests' hangups.
		// A signal that this process receives is at its default again in its children.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// command returns the command with its own directory for temporary files, which must be empty when the test ends.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	tmp, err := os.MkdirTemp("", "pb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(tmp)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v (%v)", left, err)
		}
		_ = os.RemoveAll(tmp)
	})
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+tmp)
	return cmd
}

// outcome is how a command ended.
type outcome struct {
	status         int
	stdout, stderr string
}

func execCommand(t *testing.T, args ...string) outcome {
	t.Helper()
	cmd := command(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"run"}, {"stress"}, {"watch"}, {"fake"}, {"cleanup"}, {"compare"}} {
		o := execCommand(t, append(args, "--help")...)
		if o.status != exitOK || !strings.Contains(o.stdout, "Examples:") || !strings.Contains(o.stdout, "pleg-bench "+strings.Join(args, " ")) || o.stderr != "" {
			t.Errorf("%v --help: status %d, stderr %q:\n%s", args, o.status, o.stderr, o.stdout)
		}
		if strings.Contains(o.stdout, workerCommand) {
			t.Errorf("%v --help shows the internal command", args)
		}
	}
}

func TestBadUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"dance"}, `"dance"`},
		{[]string{"wacth"}, "did you mean watch?"},
		{[]string{"--nonsense"}, "nonsense"},
		{[]string{"run", "extra"}, "extra"},
		{[]string{"run", "--pods", "0"}, "--pods 0"},
		{[]string{"run", "--pods", "many"}, "many"},
		{[]string{"run", "--rate", "-1"}, "--rate -1"},
		{[]string{"run", "--rate", "NaN"}, "--rate NaN"},
		{[]string{"run", "--duration", "0s"}, "--duration"},
		{[]string{"run", "--mode", "psychic"}, "--mode psychic"},
		{[]string{"run", "--profile", "docker"}, "containerd-2"},
		{[]string{"run", "--fault", "drop"}, "NAME=VALUE"},
		{[]string{"run", "--fault", "drop=2"}, "drop=2"},
		{[]string{"run", "--fault", "gremlins=1"}, "gremlins"},
		{[]string{"run", "-o", "yaml"}, "yaml"},
		{[]string{"run", "--endpoint", "/nowhere"}, "--image"},
		{[]string{"run", "--endpoint", "/nowhere", "--image", "x", "--profile", "crio"}, "--profile"},
		{[]string{"run", "--endpoint", "/nowhere", "--image", "x", "--fault", "drop=1"}, "--fault"},
		{[]string{"run", "--restart-runtime-at", "1h"}, "--restart-runtime-at"},
		{[]string{"run", "--restart-runtime-at", "1s", "--kill-runtime-at", "1s"}, "exclude"},
		{[]string{"run", "--stall-watch", "1h"}, "--stall-watch"},
		{[]string{"stress", "--factor", "1"}, "--factor 1"},
		{[]string{"stress", "--start-rate", "-1"}, "--start-rate -1"},
		{[]string{"stress", "--start-rate", "9", "--max-rate", "5"}, "--max-rate 5"},
		{[]string{"stress", "--step", "1ms"}, "--step 1ms"},
		{[]string{"watch", "--endpoint", "/x", "-o", "xml"}, "xml"},
		{[]string{"run", "--beside-kubelet"}, "--beside-kubelet"},
		{[]string{"stress", "--log-directory", "/tmp"}, "--log-directory"},
		{[]string{"run", "--expect", "latency.p99"}, "PATH<VALUE"},
		{[]string{"run", "--expect", "latency.p98<5ms"}, "no latency.p98"},
		{[]string{"run", "--expect", "latency.p99<soon"}, "soon"},
		{[]string{"compare", "one", "two", "three"}, "one or two runs"},
		{[]string{"cleanup", "--endpoint", "/x", "--all", "--run", "y"}, "exclude"},
		{[]string{"fake"}, "--socket is missing"},
		{[]string{"fake", "--socket", "x", "--pods", "-1"}, "--pods"},
		{[]string{"fake", "--socket", "x", "--profile", "docker"}, "docker"},
	} {
		o := execCommand(t, test.args...)
		if o.status != exitUsage || !strings.Contains(o.stderr, test.says) || o.stdout != "" {
			t.Errorf("%v: status %d, want %d; stderr %q, want %q; stdout %q, want none", test.args, o.status, exitUsage, o.stderr, test.says, o.stdout)
		}
	}
}

func TestNoRuntime(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "--endpoint", "unix:///nowhere/cri.sock", "--image", "x"},
		{"stress", "--endpoint", "unix:///nowhere/cri.sock", "--image", "x"},
		{"watch", "--endpoint", "unix:///nowhere/cri.sock"},
		{"cleanup", "--endpoint", "unix:///nowhere/cri.sock"},
	} {
		o := execCommand(t, args...)
		if o.status != exitFailure || strings.Count(o.stderr, "there is no socket /nowhere/cri.sock") != 1 {
			t.Errorf("%v: status %d, stderr %q; want %d and the reason once", args, o.status, o.stderr, exitFailure)
		}
	}
}

// runJSON runs a short run and returns its result.
func runJSON(t *testing.T, args ...string) (bench.Result, outcome) {
	t.Helper()
	o := execCommand(t, append([]string{"run", "-o", "json", "--pods", "10", "--rate", "100", "--probe-rate", "20", "--duration", "1s"}, args...)...)
	var r bench.Result
	decoder := json.NewDecoder(strings.NewReader(o.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("%v: %v\nstdout: %s\nstderr: %s", args, err, o.stdout, o.stderr)
	}
	return r, o
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"evented":  nil,
		"generic":  {"--mode", "generic"},
		"crio":     {"--profile", "crio", "--compare"},
		"faults":   {"--fault", "drop=0.2", "--fault", "stale=0.3", "--fault", "duplicate=0.3", "--fault", "fail-status=0.1"},
		"restart":  {"--duration", "2s", "--restart-runtime-at", "500ms", "--outage", "100ms"},
		"kill":     {"--duration", "2s", "--kill-runtime-at", "500ms", "--outage", "100ms"},
		"stall":    {"--duration", "2s", "--stall-watch", "1s", "--stall-watch-at", "500ms", "--watch-capacity", "1"},
		"no pause": {"--rate", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, o := runJSON(t, args...)
			if o.status != exitOK || !r.OK || len(r.Failures) != 0 {
				t.Errorf("status %d, failures %q, differences %q; stderr %s", o.status, r.Failures, r.Consistency.Differences, o.stderr)
			}
			pods := r.Consistency.CheckedPods == 10 || name == "kill" && r.Consistency.CheckedPods > 0 // a new runtime is filled as fast as the machine allows
			if r.Schema != bench.Schema || !pods || r.Runtime.Profile == "" || r.Cost.PLEGMaxRSSBytes == 0 {
				t.Errorf("the result is not whole: %+v", r)
			}
			if r.Events.RuntimeEmitted == nil || *r.Events.RuntimeEmitted == 0 {
				t.Error("the runtime emitted nothing")
			}
			if name != "no pause" && (r.Latency.Count == 0 || r.Freshness.Count == 0) {
				t.Errorf("%d latencies, %d reads: want some of each", r.Latency.Count, r.Freshness.Count)
			}
			switch name {
			case "evented":
				if r.Events.Missed != 0 || r.Events.Received == 0 || r.PLEG.State != "Connected" {
					t.Errorf("missed %d, received %d, state %s", r.Events.Missed, r.Events.Received, r.PLEG.State)
				}
			case "generic":
				if r.Events.Received != 0 || r.PLEG.State != "Idle" || r.PLEG.RelistPeriodSeconds != 1 {
					t.Errorf("received %d, state %s, period %v: a generic PLEG does not listen", r.Events.Received, r.PLEG.State, r.PLEG.RelistPeriodSeconds)
				}
			case "crio":
				if r.Comparison == nil || r.Comparison.PLEG.Mode != "generic" || r.Comparison.Consistency.Mismatches != 0 {
					t.Errorf("comparison %+v", r.Comparison)
				}
			case "faults":
				if len(r.Load.Faults) != 4 {
					t.Errorf("faults %q", r.Load.Faults)
				}
			case "restart", "kill":
				if r.Outage == nil || r.Outage.Kind != name || r.Outage.ReconnectedSeconds == 0 || r.Outage.RelistedSeconds == 0 || r.PLEG.Reconnects == 0 {
					t.Errorf("outage %+v, %d reconnects", r.Outage, r.PLEG.Reconnects)
				}
			case "stall":
				if r.Stall == nil || r.Stall.OwedEvents == 0 || r.Events.PodSyncs == 0 || r.Events.Undelivered != 0 {
					t.Errorf("stall %+v, %d PodSyncs, %d undelivered", r.Stall, r.Events.PodSyncs, r.Events.Undelivered)
				}
			}
		})
	}
}

func TestRunText(t *testing.T) {
	t.Parallel()
	o := execCommand(t, "--pods", "10", "--duration", "1s")
	if o.status != exitOK || o.stderr != "" {
		t.Errorf("status %d, stderr %q; want no progress where there is no terminal", o.status, o.stderr)
	}
	for _, want := range []string{"evented", "generic", "change told on Watch", "PASS"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the summary lacks %q:\n%s", want, o.stdout)
		}
	}
}

func TestStress(t *testing.T) {
	t.Parallel()
	o := execCommand(t, "stress", "-o", "json", "--start-rate", "20", "--max-rate", "30", "--step", "1s")
	var r bench.StressResult
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v\nstdout %s\nstderr %s", err, o.stdout, o.stderr)
	}
	if o.status != exitOK || r.Schema != bench.StressSchema || r.End == "" || len(r.Steps) == 0 || r.Events == 0 || r.Mismatches != 0 {
		t.Errorf("status %d, result %+v", o.status, r)
	}
}

// TestKeptRuns keeps two runs and compares them, and fails one by a bound.
func TestKeptRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, args := range map[string][]string{"a": {"--expect", "latency.p99<1ns", "--expect", "events.missed>=0"}, "b": nil} {
		o := execCommand(t, append([]string{"run", "--pods", "5", "--duration", "1s", "--compare=false", "--out", filepath.Join(dir, name)}, args...)...)
		if want := map[string]int{"a": exitFailure, "b": exitOK}[name]; o.status != want || strings.Contains(o.stderr, "expected latency.p99<1ns") != (name == "a") {
			t.Errorf("%s: status %d, want %d; stderr %s", name, o.status, want, o.stderr)
		}
		for _, file := range []string{"result.json", "report.html", "changes.csv", "benchstat.txt", "junit.xml"} {
			if info, err := os.Stat(filepath.Join(dir, name, file)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %s: %v", name, file, err)
			}
		}
	}
	o := execCommand(t, "compare", filepath.Join(dir, "a"), filepath.Join(dir, "b", "result.json"))
	if o.status != exitOK || !strings.Contains(o.stdout, "change told on Watch after, p99") || o.stderr != "" {
		t.Errorf("compare: status %d, %s%s", o.status, o.stdout, o.stderr)
	}
	if o := execCommand(t, "compare", dir, dir); o.status != exitFailure || !strings.Contains(o.stderr, "result.json") {
		t.Errorf("compare of nothing: status %d, %s", o.status, o.stderr)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	t.Parallel()
	if o := execCommand(t, "--version"); o.status != exitOK || !strings.HasPrefix(o.stdout, "pleg-bench ") || !strings.Contains(o.stdout, "go1.") {
		t.Errorf("status %d, %q", o.status, o.stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if o := execCommand(t, "completion", shell); o.status != exitOK || !strings.Contains(o.stdout, "pleg-bench") {
			t.Errorf("completion %s: status %d, %s", shell, o.status, o.stderr)
		}
	}
}

func TestListFaults(t *testing.T) {
	t.Parallel()
	o := execCommand(t, "fake", "--list-faults")
	if o.status != exitOK || !strings.Contains(o.stdout, "drop") || strings.Count(o.stdout, "\n") < 30 {
		t.Errorf("status %d:\n%s", o.status, o.stdout)
	}
}
