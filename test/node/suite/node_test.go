// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// A T is a running scenario on a node of its own: a runtime with a proxy and a client.
type T struct {
	*testing.T
	*crikit.Client // plays the other side: creates, stops, removes, tells the truth

	// Dir is the scenario's own directory. Its *.log are kept when the scenario fails.
	Dir string
	// Daemon is the private runtime; nil on an existing runtime.
	Daemon *daemon.Daemon
	// Proxy stands between the agents and the runtime.
	Proxy *criproxy.Proxy
	// Traits are the runtime's differences from others.
	Traits runtimes.Traits

	env       *env
	ctx       context.Context
	agents    int
	figures   []string
	converged time.Duration // the longest time until a cache equalled the runtime
}

// startLimit bounds starts and stops of the runtime and the agent.
const startLimit = 2 * time.Minute

// start starts a runtime, or uses the runtime in place, with a proxy in front. Everything goes away
// with the scenario.
func (t *T) start() {
	socket, cgroup := *endpoint, ""
	if socket == "" {
		t.Daemon = testkit.Must(daemon.New(daemon.Config{Base: t.Dir, Components: t.env.set, Image: t.env.image}))(t)
		t.Cleanup(func() { t.atEnd(t.stopForGood) })
		t.StartRuntime()
		socket, cgroup = t.Daemon.Endpoint(), "/"+filepath.Base(t.Dir)
	}
	t.Client = testkit.Must(crikit.Dial(crikit.Options{
		Endpoint: socket, Image: t.env.image, CgroupParent: cgroup,
		Namespace: fmt.Sprintf("%s-%s", filepath.Base(run.dir), filepath.Base(t.Dir)),
	}))(t)
	t.Cleanup(func() { t.atEnd(t.removePods) })
	version := testkit.Must(t.Version(t.ctx, &runtimeapi.VersionRequest{}))(t)
	t.env.version = version.RuntimeName + " " + strings.TrimSuffix(version.RuntimeVersion, "+unknown") // built without version control
	t.Proxy = testkit.Must(criproxy.Start(filepath.Join(t.Dir, "p.sock"), strings.TrimPrefix(socket, "unix://")))(t)
	t.Cleanup(t.Proxy.Close)
}

// atEnd does the work within a limit, also after an interrupt.
func (t *T) atEnd(work func(context.Context)) {
	ctx, cancel := run.clock.WithTimeout(context.WithoutCancel(t.ctx), startLimit)
	defer cancel()
	work(ctx)
}

// stopForGood stops the runtime. What the runtime leaves goes with the run.
func (t *T) stopForGood(ctx context.Context) {
	if err := t.Daemon.Stop(ctx, syscall.SIGTERM); err != nil {
		t.Errorf("stop the runtime: %v", err)
	}
}

// removePods removes the scenario's pods, and first starts a runtime left down.
func (t *T) removePods(ctx context.Context) {
	defer t.Client.Close()
	var err error
	if t.Daemon != nil && !t.Daemon.Alive() {
		err = t.Daemon.Start(ctx)
	}
	err = errors.Join(err, t.RemoveAll(ctx))
	switch {
	case err == nil:
	case t.Daemon == nil:
		t.Errorf("pods of the namespace %s are left on this runtime: remove them by hand: %v", t.Namespace, err)
	default: // they go with the run
		t.Logf("remove the pods: %v", err)
	}
}

// StopRuntime stops the runtime with the signal. Containers live on.
func (t *T) StopRuntime(signal syscall.Signal) {
	ctx, cancel := run.clock.WithTimeout(t.ctx, startLimit)
	defer cancel()
	t.Check(t.Daemon.Stop(ctx, signal))
}

// StartRuntime starts the runtime, at first or again, and waits for an answer.
func (t *T) StartRuntime() {
	ctx, cancel := run.clock.WithTimeout(t.ctx, startLimit)
	defer cancel()
	t.Check(t.Daemon.Start(ctx))
}

// UID is the UID of the named pod: unique to the run on a shared runtime.
func (t *T) UID(name string) string { return t.Namespace + "-" + name }

// Pod runs a pod.
func (t *T) Pod(name string) *crikit.Pod {
	pod := testkit.Must(t.RunPod(t.ctx, t.UID(name), name, 0))(t)
	return pod
}

// Container creates and starts a container.
func (t *T) Container(pod *crikit.Pod, name string, args ...string) string {
	return t.Made(pod, crikit.Spec{Name: name, Args: args})
}

// Made creates and starts a container as specified.
func (t *T) Made(pod *crikit.Pod, spec crikit.Spec) string {
	id := testkit.Must(t.CreateAndStart(t.ctx, pod, spec))(t)
	return id
}

// Mortal creates and starts a container that runs until [T.End], and returns its ID and its PID.
func (t *T) Mortal(pod *crikit.Pod, name string, code int32) (id string, pid int) {
	id = t.Container(pod, name, "sleep", "1h", fmt.Sprint(code))
	return id, t.pidOf(id)
}

// End lets the program of a Mortal end with its code, and waits until the end is kept for a runtime
// that may be down.
func (t *T) End(id string, pid int) {
	t.Eventually("the program ends", func() error {
		// Again and again, since a young program does not hear the signal.
		if err := syscall.Kill(pid, syscall.SIGUSR1); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d is there: %v", pid, err)
		}
		return nil
	})
	if !t.Traits.KeeperTells { // the container's own keeper writes the code and goes
		t.Eventually("the keeper ends", func() error {
			if pid, found := t.findKeeper(id); found {
				return fmt.Errorf("process %d is there", pid)
			}
			return nil
		})
	}
}

// Exited waits until the runtime reports the containers as exited, and returns the last's status.
func (t *T) Exited(ids ...string) (status *runtimeapi.ContainerStatus) {
	for _, id := range ids {
		ctx, cancel := run.clock.WithTimeout(t.ctx, startLimit)
		var err error
		status, err = t.WaitState(ctx, id, runtimeapi.ContainerState_CONTAINER_EXITED)
		cancel()
		t.Check(err)
	}
	return status
}

// failedStart creates a container with a command that does not exist, and returns its ID after its
// start has failed.
func (t *T) failedStart(pod *crikit.Pod) string {
	id := testkit.Must(t.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"}))(t)
	if err := t.Client.Start(t.ctx, id); err == nil {
		t.Fatalf("a container with a command that does not exist started")
	}
	return id
}

// Burst runs the containers of each pod, all pods at once, each pod's containers by the given
// number of makers at once. It returns their IDs.
func (t *T) Burst(pods []*crikit.Pod, containers, makers int, args ...string) []string {
	ids := make([]string, len(pods)*containers)
	var all errgroup.Group
	for p, pod := range pods {
		all.Go(func() error {
			var own errgroup.Group
			own.SetLimit(makers)
			for c := range containers {
				own.Go(func() (err error) {
					ids[p*containers+c], err = t.CreateAndStart(
						t.ctx,
						pod,
						crikit.Spec{Name: fmt.Sprint("c", c), Args: args},
					)
					return err
				})
			}
			return own.Wait()
		})
	}
	t.Check(all.Wait())
	return ids
}

// Clear removes containers, and then pods, several beside each other.
func (t *T) Clear(ids []string, pods []*crikit.Pod) {
	each := func(n int, remove func(i int) error) {
		var all errgroup.Group
		all.SetLimit(8)
		for i := range n {
			all.Go(func() error { return remove(i) })
		}
		t.Check(all.Wait())
	}
	each(len(ids), func(i int) error { return t.Remove(t.ctx, ids[i]) })
	each(len(pods), func(i int) error { return t.Delete(t.ctx, pods[i].SandboxID) })
}

// keeperOf is the PID of the process that keeps a sandbox: its shim, or the monitor of its
// container, for a sandbox without a process.
func (t *T) keeperOf(id string) int {
	pid, found := t.findKeeper(id)
	if !found {
		t.Fatalf("no %s of %s is among the run's processes", t.Traits.Keeper, id)
	}
	return pid
}

func (t *T) findKeeper(id string) (pid int, found bool) {
	all := testkit.Must(procfs.AllProcs())(t)
	for _, p := range all {
		words, _ := p.CmdLine() // of an ended process: none
		if line := strings.Join(words, " "); strings.Contains(line, t.Traits.Keeper) && strings.Contains(line, id) {
			return p.PID, true
		}
	}
	return 0, false
}

// pidOf returns the PID of a container.
func (t *T) pidOf(id string) int {
	answer := testkit.Must(t.ContainerStatus(t.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true}))(t)
	return t.pidIn(answer.Info)
}

// pauseOf returns the PID of a sandbox's own process.
func (t *T) pauseOf(id string) int {
	answer := testkit.Must(t.PodSandboxStatus(t.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true}))(t)
	return t.pidIn(answer.Info)
}

func (t *T) pidIn(verbose map[string]string) int {
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(verbose["info"]), &info); err != nil || info.Pid <= 1 {
		t.Fatalf("the runtime does not tell the PID: %v: %v", verbose, err)
	}
	return info.Pid
}

// Size returns the full size, or the bounded size in the short form.
func (t *T) Size(full, short int) int {
	if *bounded {
		return short
	}
	return full
}

// Seconds is Size as a duration.
func (t *T) Seconds(full, short int) time.Duration {
	return time.Duration(t.Size(full, short)) * time.Second
}

// Check ends the scenario if err is not nil.
func (t *T) Check(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Figure records a measured value.
func (t *T) Figure(name, format string, args ...any) {
	t.Helper()
	t.figures = append(t.figures, name+" "+fmt.Sprintf(format, args...))
	t.Log("FIGURE", t.figures[len(t.figures)-1])
}

// settle bounds the wait for a state, on a machine however slow: the time in which this process did
// not run is no part of it.
const settle = 4 * time.Minute

// Eventually polls until holds returns nil, and returns the duration.
func (t *T) Eventually(what string, holds func() error) time.Duration {
	t.Helper()
	began, waited := time.Now(), run.clock.Begin()
	for {
		err := holds()
		if err == nil {
			return time.Since(began)
		}
		if ran, _ := waited.Took(); ran > settle {
			t.Fatalf("%s: not within %v: %v", what, settle, err)
		}
		t.Sleep(10 * time.Millisecond)
	}
}

// Sleep waits. An interrupt ends the scenario.
func (t *T) Sleep(d time.Duration) {
	t.Helper()
	if err := bench.Sleep(t.ctx, d); err != nil {
		t.Fatalf("interrupted: %v", err)
	}
}

// keep copies the scenario's logs to the results.
func (t *T) keep() {
	to := filepath.Join(run.results, t.Name())
	logs, _ := filepath.Glob(filepath.Join(t.Dir, "*.log")) // the pattern is good
	for _, log := range logs {
		data, err := os.ReadFile(log)
		if err == nil {
			err = errors.Join(
				os.MkdirAll(to, 0o755),
				os.WriteFile(filepath.Join(to, filepath.Base(log)), data, 0o644),
			)
		}
		if err != nil {
			t.Log(err)
		}
	}
	t.Logf("its logs are in %s", to)
}
