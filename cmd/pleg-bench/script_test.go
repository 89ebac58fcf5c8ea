// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestMain makes the test binary pleg-bench itself, children included, so that the tests need no
// build and see races everywhere.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "pleg-bench" && signal.Ignored(syscall.SIGHUP) {
		// Under nohup every command would inherit the ignored hangups. A signal received by this
		// process is at its default again in its children.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	testkit.Waiting(12) // the scripts mostly wait for runs of seconds
	testscript.Main(m, map[string]func(){"pleg-bench": onWellMachine})
}

// onWellMachine is main on a machine that is well: the scripts judge the runtime, and neither a
// full disk nor the load of the machine on which they are played.
func onWellMachine() {
	s := ofProcess()
	s.adjust = wellMachine
	os.Exit(cli.Execute(newRoot(s), os.Args[1:], hint))
}

// wellMachine leaves out the facts by which doctor calls a machine ill. On a crowded one each
// answer may come late.
func wellMachine(f *doctor.Facts) {
	f.LagSeconds = math.Inf(1)
	f.Host.Disks = nil
	f.Host.Pressure = nil
	f.Host.KubeletHealth = ""
	f.Host.Stuck = nil
}

// TestScripts runs testdata/*.txtar. Beside the commands of testscript they have:
//
//	bench STATUS ARG...         runs pleg-bench, which must end with the status
//	usage TEXT ARG...           the same: status 2, the text on standard error, no output
//	short ARG...                a short run with JSON, which must pass and be whole
//	says TEXT                   the last output has the text, however it is folded
//	start NAME PROGRAM ARG...   starts a program; at the script's end it must end well at SIGTERM
//	until NAME TEXT [N]         waits until the program's output has the text, N times
//	signal NAME NUMBER          sends the program a signal
//	end NAME STATUS             waits for its end, -1 if killed; its output is then the last output
//	runtime SOCKET              serves a fake runtime in this process
//	faults FAULT...             sets the faults of that runtime
//	populate PODS               adds pods to it
//	asked METHOD                waits until it was called
//	tenant SOCKET RUN FOLDER    makes a sandbox as a kubelet would of a tenant's pod with the
//	                            labels and annotations of a run with that folder for logs
//	connect SOCKET              is connected to the socket until the script's end, and says nothing
//	serve http|grpc SOCKET      serves something that is no runtime
//	hostile SOCKET BEHIND [ids] serves the runtime on the socket BEHIND with venom in its texts
//	call SOCKET                 calls a method of a name with venom, which no runtime has
//	clean [DIR...]              the last output, or all files in the folders, have none of the venom
//
// A script must leave nothing in its folder for temporary files.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv(load.StateVariable, filepath.Join(env.Getenv("TMPDIR"), "state"))
			programs := make(map[string]*program)
			env.Values[sceneKey{}] = &scene{programs: programs}
			env.Defer(func() {
				for name, p := range programs {
					_ = p.cmd.Process.Signal(syscall.SIGTERM)
					if status := p.end(); status != 0 {
						t.Errorf("%s: status %d at SIGTERM: %s%s", name, status, &p.stdout, &p.stderr)
					}
				}
				if left, err := os.ReadDir(env.Getenv("TMPDIR")); err != nil || len(left) > 0 {
					t.Errorf("left behind: %v (%v)", left, err)
				}
			})
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"bench": func(ts *testscript.TestScript, _ bool, args []string) { invoke(ts, number(ts, args[0]), args[1:]) },
			"usage": func(ts *testscript.TestScript, _ bool, args []string) {
				invoke(ts, 2, args[1:])
				if !strings.Contains(ts.ReadFile("stderr"), args[0]) || ts.ReadFile("stdout") != "" {
					ts.Fatalf("want %q and no output", args[0])
				}
			},
			"short": short,
			"says": func(ts *testscript.TestScript, _ bool, args []string) {
				if said := strings.Join(strings.Fields(ts.ReadFile("stdout")+ts.ReadFile("stderr")), " "); !strings.Contains(said, args[0]) {
					ts.Fatalf("%q is not in: %s", args[0], said)
				}
			},
			"start": func(ts *testscript.TestScript, _ bool, args []string) {
				p := &program{cmd: exec.Command(args[1], args[2:]...)}
				p.cmd.Dir = ts.MkAbs(".")
				p.cmd.Env = append(os.Environ(), "TMPDIR="+ts.Getenv("TMPDIR"), load.StateVariable+"="+ts.Getenv(load.StateVariable))
				p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
				ts.Check(p.cmd.Start())
				sceneOf(ts).programs[args[0]] = p
			},
			"until": func(ts *testscript.TestScript, _ bool, args []string) {
				p := sceneOf(ts).programs[args[0]]
				times := 1
				if len(args) > 2 {
					times = number(ts, args[2])
				}
				for limit := time.Now().Add(endsWithin); strings.Count(p.stderr.String()+p.stdout.String(), args[1]) < times; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(limit) {
						ts.Fatalf("it does not say %q, %d times: %s%s", args[1], times, &p.stdout, &p.stderr)
					}
				}
			},
			"signal": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(sceneOf(ts).programs[args[0]].cmd.Process.Signal(syscall.Signal(number(ts, args[1]))))
			},
			"end": func(ts *testscript.TestScript, _ bool, args []string) {
				p := sceneOf(ts).programs[args[0]]
				delete(sceneOf(ts).programs, args[0])
				status := p.end()
				_, _ = ts.Stdout().Write([]byte(p.stdout.String()))
				_, _ = ts.Stderr().Write([]byte(p.stderr.String()))
				if status != number(ts, args[1]) {
					ts.Fatalf("status %d, want %s", status, args[1])
				}
			},
			"runtime": func(ts *testscript.TestScript, _ bool, args []string) {
				rt, err := fakeruntime.New(fakeruntime.Config{})
				ts.Check(err)
				ctx, stop := context.WithCancel(context.Background())
				serve(ts, args[0], func(lis net.Listener) error { return rt.Serve(ctx, lis) }, stop)
				ts.Defer(rt.Close)
				sceneOf(ts).runtime = rt
			},
			"faults": func(ts *testscript.TestScript, _ bool, args []string) {
				faults, err := fakeruntime.ParseFaults(args...)
				ts.Check(err)
				ts.Check(sceneOf(ts).runtime.SetFaults(faults))
			},
			"populate": func(ts *testscript.TestScript, _ bool, args []string) {
				_, err := sceneOf(ts).runtime.Populate(fakeruntime.Population{Pods: number(ts, args[0]), Containers: 1})
				ts.Check(err)
			},
			"asked": func(ts *testscript.TestScript, _ bool, args []string) {
				rt := sceneOf(ts).runtime
				for limit := time.Now().Add(endsWithin); rt.Stats().RPCs[args[0]] == 0; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(limit) {
						ts.Fatalf("nobody has called %s: %v", args[0], rt.Stats().RPCs)
					}
				}
			},
			"connect": func(ts *testscript.TestScript, _ bool, args []string) {
				conn, err := net.Dial("unix", ts.MkAbs(args[0]))
				ts.Check(err)
				ts.Defer(func() { _ = conn.Close() })
			},
			"tenant":  makeTenant,
			"hostile": serveHostile,
			"call":    call,
			"clean":   clean,
			"serve": func(ts *testscript.TestScript, _ bool, args []string) {
				if args[0] == "http" {
					web := new(http.Server)
					serve(ts, args[1], web.Serve, func() { _ = web.Close() })
					return
				}
				bare := grpc.NewServer()
				serve(ts, args[1], bare.Serve, bare.Stop)
			},
		},
	})
}

// endsWithin is how long a program may take to say or to end what was asked for.
const endsWithin = 90 * time.Second

// scene is what a script has started.
type scene struct {
	programs map[string]*program
	runtime  *fakeruntime.Runtime
}

type sceneKey struct{}

func sceneOf(ts *testscript.TestScript) *scene { return ts.Value(sceneKey{}).(*scene) }

// program is a started program.
type program struct {
	cmd            *exec.Cmd
	stdout, stderr output
}

// output can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// end waits for the end of all that write to the program's output, and returns the exit status.
func (p *program) end() int {
	defer time.AfterFunc(endsWithin, func() { _ = p.cmd.Process.Kill() }).Stop()
	_ = p.cmd.Wait() // the status tells
	return p.cmd.ProcessState.ExitCode()
}

func number(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

// invoke runs pleg-bench, and checks its status.
func invoke(ts *testscript.TestScript, want int, args []string) {
	status := 0
	err := ts.Exec("pleg-bench", args...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if status != want {
		ts.Fatalf("status %d, want %d", status, want)
	}
}

// short makes a short run.
func short(ts *testscript.TestScript, _ bool, args []string) {
	invoke(ts, 0, append([]string{"run", "-o", "json", "--pods", "10", "--rate", "100", "--probe-rate", "20", "--duration", "1s"}, args...))
	var r bench.Result
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	decoder.DisallowUnknownFields()
	ts.Check(decoder.Decode(&r))
	if !r.OK || len(r.Failures) != 0 || r.Schema != bench.Schema || r.Consistency.CheckedPods != 10 || r.Cost.PLEGMaxRSSBytes == 0 ||
		r.Load.Rate > 0 && (r.Latency.Count == 0 || r.Freshness.Count == 0) {
		ts.Fatalf("the result is not whole: %+v", r)
	}
	if emitted := r.Events.RuntimeEmitted; r.Runtime.Endpoint == "" || (r.Runtime.Profile != "") != (emitted != nil && *emitted > 0) {
		ts.Fatalf("profile %q, emitted %v", r.Runtime.Profile, emitted)
	}
}

// serve serves on a unix socket until the script's end.
func serve(ts *testscript.TestScript, socket string, f func(net.Listener) error, stop func()) {
	lis, err := net.Listen("unix", ts.MkAbs(socket))
	ts.Check(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f(lis) // ends with stop
	}()
	ts.Defer(func() {
		stop()
		<-done
	})
}

// makeTenant makes the sandbox of a tenant's pod.
func makeTenant(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := grpc.NewClient("unix:"+ts.MkAbs(args[0]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	const uid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
	_, err = runtimeapi.NewRuntimeServiceClient(conn).RunPodSandbox(context.Background(), &runtimeapi.RunPodSandboxRequest{
		Config: &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Name: "tenant", Namespace: "default", Uid: uid},
			Labels:      map[string]string{load.RunLabel: args[1], load.LabelPodUID: uid, load.LabelPodName: "tenant", load.LabelPodNamespace: "default"},
			Annotations: map[string]string{"evented-pleg.io/bench-logs": ts.MkAbs(args[2])},
		},
	})
	ts.Check(err)
}
