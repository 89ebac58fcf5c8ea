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
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// asCommand makes the test binary the command itself, children included, so that the tests need no
// build and see races everywhere.
const asCommand = "PLEG_BENCH_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if signal.Ignored(syscall.SIGHUP) {
		// Under nohup every command would inherit the ignored hangups. A signal received by this
		// process is at its default again in its children.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// command returns the command with its own directory for temporary files, which must be empty at
// the test's end.
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

// TestFleet starts the program beside pleg-bench or in PATH, and names its installation otherwise.
func TestFleet(t *testing.T) {
	dir := t.TempDir()
	fleet := func() outcome {
		cmd := command(t, "fleet", "verdict", "--prometheus", "http://x", "-v")
		cmd.Env = append(cmd.Env, "PATH="+dir)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // the status tells
		return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	if o := fleet(); o.status != cli.ExitFailure || !strings.Contains(o.stderr, "go install github.com/evented-pleg/evented-pleg/cmd/pleg-bench-fleet@") {
		t.Errorf("without the program: status %d, %s", o.status, o.stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, fleetProgram), []byte("#!/bin/sh\necho \"$*\"; exit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if o := fleet(); o.status != 7 || o.stdout != "verdict --prometheus http://x -v\n" {
		t.Errorf("with the program: %+v", o)
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
		{[]string{"run", "--duration", "0s"}, "pleg-bench: --duration 0s: it must be positive\nRun pleg-bench"},
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
		{[]string{"compare", "one", "two", "three"}, "one or two folders"},
		{[]string{"cleanup", "--endpoint", "/x", "--all", "--run", "y"}, "exclude"},
		{[]string{"run", "--image", "x", "--endpoint", "http://localhost:80"}, "unix:///path/to/socket"},
		{[]string{"watch", "--endpoint", "http://localhost:80"}, "unix:///path/to/socket"},
		{[]string{"fake"}, "--socket is missing"},
		{[]string{"fake", "--socket", "x", "--pods", "-1"}, "--pods"},
		{[]string{"fake", "--socket", "x", "--profile", "docker"}, "docker"},
	} {
		o := execCommand(t, test.args...)
		if o.status != cli.ExitUsage || !strings.Contains(o.stderr, test.says) || o.stdout != "" {
			t.Errorf("%v: status %d, want %d; stderr %q, want %q; stdout %q, want none", test.args, o.status, cli.ExitUsage, o.stderr, test.says, o.stdout)
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
		"no pause": {"--rate", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, o := runJSON(t, args...)
			if o.status != cli.ExitOK || !r.OK || len(r.Failures) != 0 {
				t.Errorf("status %d, failures %q, differences %q; stderr %s", o.status, r.Failures, r.Consistency.Differences, o.stderr)
			}
			if r.Schema != bench.Schema || r.Consistency.CheckedPods != 10 || r.Runtime.Profile == "" || r.Cost.PLEGMaxRSSBytes == 0 {
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
			}
		})
	}
}

func TestRunText(t *testing.T) {
	t.Parallel()
	o := execCommand(t, "--pods", "10", "--duration", "1s")
	if o.status != cli.ExitOK || o.stderr != "" {
		t.Errorf("status %d, stderr %q; want no progress where there is no terminal", o.status, o.stderr)
	}
	for _, want := range []string{"evented", "generic", "from a change to its event", "PASS"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the summary lacks %q:\n%s", want, o.stdout)
		}
	}
	if strings.Contains(o.stdout, "GetNewerThan") {
		t.Errorf("reads that nobody asked for are part of the cost:\n%s", o.stdout)
	}
}

func TestStress(t *testing.T) {
	t.Parallel()
	o := execCommand(t, "stress", "-o", "json", "--start-rate", "20", "--max-rate", "30", "--step", "1s")
	var r bench.StressResult
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v\nstdout %s\nstderr %s", err, o.stdout, o.stderr)
	}
	if o.status != cli.ExitOK || r.Schema != bench.StressSchema || r.End == "" || len(r.Steps) == 0 || r.Events == 0 || r.Mismatches != 0 {
		t.Errorf("status %d, result %+v", o.status, r)
	}
}

// TestKeptRuns keeps runs and compares them, and fails one by a bound.
func TestKeptRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"a": {"--expect", "latency.p99<1ns", "--expect", "events.missed>=0"}, "b": {"--compare", "--duration", "2s", "--restart-runtime-at", "500ms"},
	} {
		o := execCommand(t, append([]string{"run", "--pods", "5", "--rate", "50", "--duration", "1s", "--compare=false", "--out", filepath.Join(dir, name)}, args...)...)
		if want := map[string]int{"a": cli.ExitUnmet, "b": cli.ExitOK}[name]; o.status != want || strings.Contains(o.stderr, "expected latency.p99<1ns") != (name == "a") {
			t.Errorf("%s: status %d, want %d; stderr %s", name, o.status, want, o.stderr)
		}
		files, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil || len(files) != 3 {
			t.Errorf("%s: kept %v (%v), want three files", name, files, err)
		}
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	o := execCommand(t, "compare", a, filepath.Join(b, "benchstat.txt"), "--out", filepath.Join(dir, "c"))
	for _, want := range []string{"not alike: restart-runtime-at: 0s and 500ms", "Run/mode=evented", "p99-sec", "vs base", "~ (p=1.000 n=1)", "need >= 6 samples"} {
		if o.status != cli.ExitOK || !strings.Contains(o.stdout, want) || o.stderr != "" {
			t.Errorf("compare: status %d, want %q:\n%s%s", o.status, want, o.stdout, o.stderr)
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "c", "report.html")); err != nil || !strings.Contains(string(page), "not alike: restart-runtime-at") {
		t.Errorf("the page of the comparison: %v", err)
	}
	if o := execCommand(t, "compare", b); o.status != cli.ExitOK || !strings.Contains(o.stdout, "A: generic") {
		t.Errorf("compare the PLEGs of one run: status %d, %s%s", o.status, o.stdout, o.stderr)
	}
	for _, test := range []struct{ path, says string }{{t.TempDir(), "holds no benchstat.txt"}, {filepath.Join(dir, "nowhere"), "no such file"}, {a, "--compare"}} {
		if o := execCommand(t, "compare", test.path); o.status != cli.ExitFailure || !strings.Contains(o.stderr, test.says) {
			t.Errorf("compare of %s: status %d, %s; want %q", test.path, o.status, o.stderr, test.says)
		}
	}
}

// TestCompare: six runs each are enough to say what differs, and benchstat's words say so.
func TestCompare(t *testing.T) {
	t.Parallel()
	side := func(calls ...float64) *measured {
		return &measured{name: "x", values: map[string]map[string][]float64{"Run": {"calls": calls, "p50-sec": {1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3}}}}
	}
	d := compare(side(100, 101, 102, 103, 104, 105), side(200, 201, 202, 203, 204, 205))
	if len(d.Tables) != 1 || len(d.Tables[0].Rows) != 2 || !slices.Equal(d.Story, []string{"¹ all samples are equal"}) {
		t.Fatalf("%+v", d)
	}
	for i, want := range []string{"+97.56% (p=0.002 n=6)", "~ (p=1.000 n=6) ¹"} {
		if got := d.Tables[0].Rows[i].Cells[2]; got != want {
			t.Errorf("%s: %q, want %q", d.Tables[0].Rows[i].Name, got, want)
		}
	}
}

// TestNothingChecked: a run without a verdict fails, and so does a stress test of a runtime without
// events; a polled column is headed so.
func TestNothingChecked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args, says string
		status     int
	}{
		{"run --fault fail-write=1 --duration 1s", "virtual failure", cli.ExitFailure},
		{"run --profile no-events --duration 1s", "This runtime offers no events", cli.ExitOK},
		{"stress --profile no-events --step 1s", "no-events: the runtime offers no events", cli.ExitFailure},
		{"stress --profile no-events --step 1s --expect late=0", "expected late=0: this run has no such number", cli.ExitFailure},
	} {
		o := execCommand(t, append(strings.Fields(test.args), "--pods", "3")...)
		if said := strings.Join(strings.Fields(o.stdout+o.stderr), " "); o.status != test.status || !strings.Contains(said, test.says) {
			t.Errorf("%s: status %d, want %d and %q:\n%s%s", test.args, o.status, test.status, test.says, o.stdout, o.stderr)
		}
	}
	// Everything fails after the runtime was killed: the load fills the runtime again before the
	// verdict.
	r, o := runJSON(t, "--kill-runtime-at", "700ms", "--outage", "250ms")
	if o.status != cli.ExitOK || r.Consistency.CheckedPods != 10 {
		t.Errorf("status %d, %d pods checked, failures %q", o.status, r.Consistency.CheckedPods, r.Failures)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	t.Parallel()
	if o := execCommand(t, "--version"); o.status != cli.ExitOK || !strings.HasPrefix(o.stdout, "pleg-bench ") || !strings.Contains(o.stdout, "go1.") {
		t.Errorf("status %d, %q", o.status, o.stdout)
	}
	if o := execCommand(t, "completion", "bash"); o.status != cli.ExitOK || !strings.Contains(o.stdout, "pleg-bench") {
		t.Errorf("completion: status %d, %s", o.status, o.stderr)
	}
}

func TestListFaults(t *testing.T) {
	t.Parallel()
	o := execCommand(t, "fake", "--list-faults")
	if o.status != cli.ExitOK || !strings.Contains(o.stdout, "drop") || strings.Count(o.stdout, "\n") < 30 {
		t.Errorf("status %d:\n%s", o.status, o.stdout)
	}
}
