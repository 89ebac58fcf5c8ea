// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
)

// asCommand makes the test binary the command itself, children included, so that the tests need no build and see races everywhere.
const asCommand = "PLEG_BENCH_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
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
	for _, args := range [][]string{{}, {"run"}, {"stress"}, {"watch"}, {"fake"}, {"events"}} {
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
		{[]string{"run", "--plot", "x.png"}, ".svg"},
		{[]string{"run", "--plot", "/nowhere/at/all.svg"}, "/nowhere/at"},
		{[]string{"stress", "--factor", "1"}, "--factor 1"},
		{[]string{"stress", "--start-rate", "0"}, "--start-rate 0"},
		{[]string{"stress", "--step", "1ms"}, "--step 1ms"},
		{[]string{"watch"}, "--endpoint is missing"},
		{[]string{"watch", "--endpoint", "/x", "-o", "xml"}, "xml"},
		{[]string{"events", "--load", "nothing"}, "--load nothing"},
		{[]string{"events", "--recorder", "tape"}, "--recorder tape"},
		{[]string{"events", "--fault", "418"}, "--fault 418"},
		{[]string{"events", "--count", "-1"}, "--count -1"},
		{[]string{"events", "--settle", "-1s"}, "--settle -1s"},
		{[]string{"events", "--kubeconfig", "/nowhere"}, "/nowhere"},
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
	o := execCommand(t, append([]string{"run", "-o", "json", "--pods", "10", "--duration", "1s"}, args...)...)
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
	picture := filepath.Join(t.TempDir(), "latency.svg")
	o := execCommand(t, "--pods", "10", "--duration", "1s", "--plot", picture)
	if o.status != exitOK || o.stderr != "" {
		t.Errorf("status %d, stderr %q; want no progress where there is no terminal", o.status, o.stderr)
	}
	for _, want := range []string{"evented", "generic", "change told on Watch", "PASS"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the summary lacks %q:\n%s", want, o.stdout)
		}
	}
	if svg, err := os.ReadFile(picture); err != nil || !strings.Contains(string(svg), "<circle") {
		t.Errorf("the picture (%v) has no dots", err)
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

func TestEvents(t *testing.T) {
	t.Parallel()
	o := execCommand(t, "events", "-o", "json", "--count", "1000", "--recorder", "series", "--recorder", "client-go-legacy", "--settle", "1s")
	var reports []struct {
		Recorder        string
		Emitted, Stored int64
	}
	if err := json.Unmarshal([]byte(o.stdout), &reports); err != nil {
		t.Fatalf("%v\nstdout %s\nstderr %s", err, o.stdout, o.stderr)
	}
	if o.status != exitOK || len(reports) != 2 || reports[0].Emitted != 1000 || reports[0].Stored != 1000 || reports[1].Recorder != "client-go-legacy" {
		t.Errorf("status %d, reports %+v, stderr %s", o.status, reports, o.stderr)
	}
}

// fields walks the JSON of a type and yields the path and the type of each field as docs/pleg-bench.md writes them.
func fields(typ reflect.Type, path string, yield func(path, typ string)) {
	switch typ {
	case reflect.TypeFor[bench.LatencyResult]():
		yield(path, "quantiles")
		return
	case reflect.TypeFor[*bench.ComparisonResult]():
		yield(path, "object")
		return
	}
	switch typ.Kind() {
	case reflect.Struct:
		for f := range typ.Fields() {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case tag == "-":
			case f.Anonymous:
				fields(f.Type, path, yield)
			case path == "":
				fields(f.Type, tag, yield)
			default:
				fields(f.Type, path+"."+tag, yield)
			}
		}
	case reflect.Pointer:
		if typ.Elem().Kind() == reflect.Struct {
			fields(typ.Elem(), path, yield)
			return
		}
		fields(typ.Elem(), path, func(path, typ string) { yield(path, typ+" or null") })
	case reflect.Slice:
		fields(typ.Elem(), path, func(path, typ string) { yield(path, "[]"+typ) })
	case reflect.Map:
		fields(typ.Elem(), path, func(path, typ string) { yield(path, "map of "+typ) })
	case reflect.Int, reflect.Int64, reflect.Uint64:
		yield(path, "int")
	case reflect.Float64:
		yield(path, "float")
	default:
		yield(path, typ.Kind().String())
	}
}

// TestJSONIsDocumented compares the fields of a result with the table in docs/pleg-bench.md: the documentation is the golden file.
func TestJSONIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/pleg-bench.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| ([^|]+) \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	// The commands' table has the same form.
	for _, command := range []string{"run", "stress", "watch", "fake", "events"} {
		delete(documented, command)
	}
	real := make(map[string]string)
	fields(reflect.TypeFor[bench.Result](), "", func(path, typ string) { real[path] = typ })
	if diff := cmp.Diff(real, documented); diff != "" {
		t.Errorf("docs/pleg-bench.md differs from the JSON (-JSON +docs):\n%s", diff)
	}
}

// TestJSONHasWhatWasPromised holds the fields that scripts may rely on since the first version.
func TestJSONHasWhatWasPromised(t *testing.T) {
	t.Parallel()
	have := make(map[string]bool)
	fields(reflect.TypeFor[bench.Result](), "", func(path, typ string) {
		have[path] = true
		if typ == "quantiles" {
			for _, q := range []string{"p50", "p90", "p99", "max"} {
				have[path+"."+q] = true
			}
		}
	})
	for object, names := range map[string]string{
		"runtime": "name,version,endpoint,profile", "load": "pods,containers,rate,duration_seconds,seed",
		"pleg":   "mode,state,relists,inspections,reconnects,relist_period_seconds",
		"events": "runtime_emitted,received,lifecycle,missed,owed,duplicates,out_of_order", "latency_seconds": "p50,p90,p99,max",
		"freshness_seconds": "p50,p99,max", "consistency": "checked_pods,mismatches", "cost": "pleg_cpu_seconds,runtime_cpu_seconds,pleg_max_rss_bytes,rpcs",
	} {
		for name := range strings.SplitSeq(names, ",") {
			if !have[object+"."+name] {
				t.Errorf("the JSON has no field %s.%s", object, name)
			}
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
