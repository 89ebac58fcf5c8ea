// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/criproxy"
)

// killed ends the keepers of a pod, a sandbox and a container, each behind the runtime's back, and
// removes a pod during its inspection.
func killed(t *T) {
	n := t.NewNode()
	a := n.NewAgent()
	a.WaitConnected()

	if n.Traits.KeeperTells { // the sandbox's STOPPED comes with the container still RUNNING
		n.kill(a, "shim", func(pod *crikit.Pod, _ string) int { return n.keeperOf(pod.SandboxID) }, true, true)
	} else {
		n.killMonitor(a)
	}
	if n.Traits.SandboxProcess { // the container may live on
		n.kill(a, "pause", func(pod *crikit.Pod, _ string) int { return n.pauseOf(pod.SandboxID) }, true, false)
	}
	n.kill(a, "container", func(_ *crikit.Pod, id string) int { return n.pidOf(id) }, false, true)

	// The inspection: held in the proxy until the pod is gone.
	methods := []string{"ListContainers", "PodSandboxStatus"}
	if !n.Traits.StatusHasContainers { // otherwise nobody asks for the containers' own
		methods = append(methods, "ContainerStatus")
	}
	for _, method := range methods {
		n.removedWhileInspected(a, method)
	}
}

// killMonitor kills a container's monitor, and then the container: the runtime notices neither, and
// the agent shows the runtime's state.
func (n *Node) killMonitor(a *Agent) {
	t := n.t
	pod := n.Pod("monitor")
	id := n.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(bench.Running, id)
	process := n.pidOf(id)
	t.Check(syscall.Kill(n.keeperOf(id), syscall.SIGKILL))
	t.Check(syscall.Kill(process, syscall.SIGKILL))
	t.Sleep(3 * time.Second)
	a.Converge()
	shown := bench.Find(n.MustTruth(), pod.UID, id)
	t.Figure("monitor and container killed", "the runtime says %s (%d %s)", shown.State, shown.ExitCode, shown.Reason)
	n.deletePod(pod.SandboxID)
	a.WaitEvent(bench.Removed, id)
	a.WaitEvent(bench.Removed, pod.SandboxID)
	a.Converge()
}

// kill kills a process of a pod, chosen by the pod and its container, and demands the ends that the
// runtime tells of then.
func (n *Node) kill(a *Agent, name string, victim func(*crikit.Pod, string) int, sandboxEnds, containerEnds bool) {
	t := n.t
	pod := n.Pod(name)
	id := n.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(bench.Running, id)
	t.Check(syscall.Kill(victim(pod, id), syscall.SIGKILL))
	began := time.Now()
	if sandboxEnds {
		died := a.WaitEvent(bench.Exited, pod.SandboxID)
		t.Figure(name+" killed→sandbox died", "%dms", since(began, died.At).Milliseconds())
	}
	if containerEnds {
		died := a.WaitEvent(bench.Exited, id)
		a.Converge()
		held := bench.Find(a.Cache(), pod.UID, id)
		t.Figure(name+" killed→container died", "%dms (%d %s)", since(began, died.At).Milliseconds(), held.ExitCode, held.Reason)
		if !sandboxEnds && held.ExitCode != 137 {
			t.Errorf("a container whose process was killed is held as %v, want exit code 137", held)
		}
	}
	a.Converge()
	n.deletePod(pod.SandboxID)
	a.WaitEvent(bench.Exited, id)
	a.WaitEvent(bench.Removed, pod.SandboxID)
	a.Converge()
}

// removedWhileInspected holds the agent's calls of a method while a wanted pod is removed.
func (n *Node) removedWhileInspected(a *Agent, method string) {
	t := n.t
	pod := n.Pod("inspected-" + strings.ToLower(method))
	id := n.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(bench.Running, id)
	hold := n.Proxy.Inject(criproxy.Fault{Method: method, Do: criproxy.Hold{}})
	all := []*Agent{a}
	if method == "PodSandboxStatus" {
		// The agent has read the sandbox and will not read it again while ready. A new agent does.
		all = append(all, n.NewAgent())
	}
	// Changes missing in every payload cause a read of the pod: a container that fails to start.
	// Where such a container cannot even be created, the question below does.
	if !n.Traits.CreateFails {
		broken, err := n.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"})
		t.Check(err)
		if err := n.Start(t.ctx, broken); err == nil {
			t.Fatalf("a container with a command that does not exist started")
		}
	}
	asked := make(chan struct{})
	go func() { // ends when the agent answers, or the scenario does
		defer close(asked)
		_, _ = child.Ask[worker.Newer](t.ctx, a.Calls, "Newer", pod.UID)
	}()
	held := t.Eventually(settle, "the agent calls "+method, func() error {
		if hold.Hits() == 0 {
			return fmt.Errorf("not called")
		}
		return nil
	})
	n.deletePod(pod.SandboxID)
	hold.Remove()
	<-asked
	a.WaitEvent(bench.Removed, id)
	a.WaitEvent(bench.Removed, pod.SandboxID)
	for _, agent := range all {
		agent.Converge()
		if held := agent.Cache(); len(held) != 0 {
			t.Errorf("every pod is gone, and the cache of %s holds %v", agent.name, held)
		}
	}
	t.Logf("%s held after %v", method, held)
}

// deletePod deletes a sandbox, again and again on a runtime that fails at first after its shim's
// death.
func (n *Node) deletePod(sandboxID string) {
	n.t.Eventually(settle, "the sandbox can be deleted", func() error { return n.Delete(n.t.ctx, sandboxID) })
}

// keeperOf is the PID of the process that keeps a sandbox: its shim, or the monitor of its
// container, for a sandbox without a process.
func (n *Node) keeperOf(id string) int {
	pid, found := n.findKeeper(id)
	if !found {
		n.t.Fatalf("no %s of %s is among the run's processes", n.Traits.Keeper, id)
	}
	return pid
}

func (n *Node) findKeeper(id string) (pid int, found bool) {
	all, err := procfs.AllProcs()
	n.t.Check(err)
	for _, p := range all {
		words, _ := p.CmdLine() // of an ended process: none
		if line := strings.Join(words, " "); strings.Contains(line, n.Traits.Keeper) && strings.Contains(line, id) {
			return p.PID, true
		}
	}
	return 0, false
}

// pidOf returns the PID of a container.
func (n *Node) pidOf(id string) int {
	answer, err := n.ContainerStatus(n.t.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	n.t.Check(err)
	return n.pidIn(answer.Info)
}

// pauseOf returns the PID of a sandbox's own process.
func (n *Node) pauseOf(id string) int {
	answer, err := n.PodSandboxStatus(n.t.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	n.t.Check(err)
	return n.pidIn(answer.Info)
}

func (n *Node) pidIn(verbose map[string]string) int {
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(verbose["info"]), &info); err != nil || info.Pid <= 1 {
		n.t.Fatalf("the runtime does not tell the PID: %v: %v", verbose, err)
	}
	return info.Pid
}
