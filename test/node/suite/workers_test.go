// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/test/node/conformance"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
)

// newerLimit is the longest wait of a worker while the runtime answers. An inspection takes
// milliseconds; a relist period, for which a worker must not wait, has grown beyond by then in the
// full form. The rest is for slow machines.
const newerLimit = 45 * time.Second

// newer lets many pod workers ask for statuses newer than the present moment, ten times as often as
// the kubelet's, in quiet, under load, with a disturbed wire, and across restarts of the runtime.
// The workers of every other scenario do the same at the kubelet's own rate.
func newer(t *T) {
	a := t.Connect(stableAfter(2 * time.Second))
	pods := t.Size(20, 8)
	must[bool](a, "Probe", 10*float64(pods))
	for p := range pods {
		t.Container(t.Pod(fmt.Sprintf("still%d", p)), "c", "sleep", "1h")
	}
	phase := func(name string, bounded bool) {
		asked := len(a.Waits())
		t.Sleep(t.Seconds(20, 5))
		var waits []time.Duration
		t.Eventually(name+": an answer is compared with the runtime", func() error {
			if waits = a.Waits()[asked:]; len(waits) == 0 {
				return errors.New("none")
			}
			return nil
		})
		t.Figure(name, "%s", quantiles(waits))
		if longest := slices.Max(waits); bounded && longest > newerLimit {
			t.Errorf("%s: a worker waited %v while the runtime answered", name, longest)
		}
	}
	a.waitPeriod(t.Seconds(64, 8))
	phase("in quiet", true)
	l := t.StartLoad(4, 3, 500*time.Millisecond)
	phase("under load", true)
	hold := t.Proxy.Inject(criproxy.Fault{Method: eventStream, Do: criproxy.Stall{}})
	phase("stream stalled", true)
	hold.Remove()
	slow := t.Proxy.Inject(
		criproxy.Fault{Method: "ContainerStatus", Do: criproxy.Delay{For: 300 * time.Millisecond}},
	)
	phase("statuses slow", true)
	slow.Remove()
	if t.Daemon != nil {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.StopRuntime(signal)
			t.StartRuntime()
		}
		phase("across restarts", false)
		a.WaitConnected()
	}
	l.Stop()
	a.Converge()
	phase("afterwards", true)
}

// idle compares the costs of the agent and the runtime on an idle node, with the stream and by
// polling.
func idle(t *T) {
	for p := range t.Size(50, 15) {
		t.Container(t.Pod(fmt.Sprintf("idle%d", p)), "c", "pause")
	}
	length := t.Seconds(60, 10)
	calls := map[string]int{}
	for _, mode := range []string{worker.Evented, worker.Generic} {
		a := t.NewAgent(withoutWorkers, func(c *worker.Config) { c.Mode = mode })
		if mode == worker.Evented {
			a.WaitConnected()
			a.waitPeriod(t.Seconds(64, 8))
		}
		a.Converge()
		before, agent, runtime := t.Proxy.Calls(), t.cpu(a.PID()), t.runtimeCPU()
		t.Sleep(length)
		agent, runtime = t.cpu(a.PID())-agent, t.runtimeCPU()-runtime
		for method, count := range t.Proxy.Calls() {
			calls[mode] += count - before[method]
		}
		t.Figure(
			mode,
			"%d RPCs, agent %s, runtime %s CPU in %v",
			calls[mode],
			bench.Short(agent),
			bench.Short(runtime),
			length,
		)
		a.Kill()
	}
	if calls[worker.Generic] == 0 {
		t.Errorf("in %v polling made no RPC through the proxy, want one list at least: nothing was counted", length)
	}
	// Polling makes a list of sandboxes and of containers a second, on a machine that is fast enough.
	// The stream must save nearly all of them, the project's purpose.
	if polls := 2 * int(length/time.Second); t.Traits.Events && calls[worker.Evented]*4 > polls {
		t.Errorf(
			"with the stream %d RPCs in %v, where polling makes %d: want less than a quarter",
			calls[worker.Evented],
			length,
			polls,
		)
	}
}

// cpu is the CPU time of a process so far.
func (t *T) cpu(pid int) time.Duration {
	spent := testkit.Must(daemon.CPUTime(pid))(t)
	return spent
}

// runtimeCPU is that of the runtime; 0 of a runtime in place.
func (t *T) runtimeCPU() time.Duration {
	if t.Daemon == nil {
		return 0
	}
	return t.cpu(t.Daemon.PID())
}

// envUpdate set to 1 lets the scenario write the transcript anew.
const envUpdate = "NODE_E2E_UPDATE"

// conform runs the script of package conformance and demands the recorded transcript of the
// runtime, with which the ordinary tests compare the fake runtime.
func conform(t *T) {
	got, err := conformance.Record(t.ctx, t.Client, t.Traits, 800*time.Millisecond)
	t.Logf("the transcript:\n%s", got)
	t.Check(err)
	t.Figure("steps", "%d", len(got))
	path := filepath.Join(run.root, "test", "node", "conformance", "testdata", t.env.kind.Name+".txt")
	if os.Getenv(envUpdate) == "1" {
		t.Check(os.WriteFile(path, []byte(got.String()), 0o644))
		return
	}
	want := testkit.Must(os.ReadFile(path))(t)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf(
			"%s does not do what its transcript %s says; if that is right, record it anew with %s=1 (-want +got):\n%s",
			t.env.version,
			path,
			envUpdate,
			diff,
		)
	}
}
