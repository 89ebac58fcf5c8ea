// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/criproxy"
)

// killed ends a pod's shim, then a pod's sandbox, and removes a pod while the
// agent is inspecting it.
func killed(t *T) {
	n := t.NewNode()
	a := n.NewAgent()
	a.WaitConnected()

	// The shim: the sandbox's STOPPED comes with the container still RUNNING.
	pod := n.Pod("shim")
	id := n.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(pleg.ContainerStarted, id)
	shim := n.shimOf(pod.SandboxID)
	t.Check(syscall.Kill(shim, syscall.SIGKILL))
	began := time.Now()
	sandbox := a.WaitEvent(pleg.ContainerDied, pod.SandboxID)
	container := a.WaitEvent(pleg.ContainerDied, id)
	a.Converge()
	held := a.MustCache()[pod.UID].Containers[id]
	t.Figure("shim killed→sandbox died", "%dms", sandbox.At.Sub(began).Milliseconds())
	t.Figure("shim killed→container died", "%dms (%d %s)", container.At.Sub(began).Milliseconds(), held.ExitCode, held.Reason)
	n.deletePod(pod.SandboxID)
	a.WaitEvent(pleg.ContainerRemoved, pod.SandboxID)

	// The sandbox: its pause process ends, the container lives on.
	pod = n.Pod("pause")
	id = n.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(pleg.ContainerStarted, id)
	t.Check(syscall.Kill(n.pauseOf(pod.SandboxID), syscall.SIGKILL))
	began = time.Now()
	sandbox = a.WaitEvent(pleg.ContainerDied, pod.SandboxID)
	a.Converge()
	t.Figure("sandbox killed→died", "%dms", sandbox.At.Sub(began).Milliseconds())
	if state := a.MustCache()[pod.UID].Containers[id].State; state != "CONTAINER_RUNNING" {
		t.Logf("the container did not outlive its sandbox: %s", state)
	}
	n.deletePod(pod.SandboxID)
	a.WaitEvent(pleg.ContainerDied, id)
	a.WaitEvent(pleg.ContainerRemoved, pod.SandboxID)
	a.Converge()

	// The inspection: held in the proxy until the pod is gone.
	for _, method := range []string{"ListContainers", "PodSandboxStatus", "ContainerStatus"} {
		n.removedWhileInspected(a, method)
	}
	t.Figure("violations", "%d", a.MustStats().Violations)
}

// removedWhileInspected holds the agent's calls of one method while a pod that
// it wants to know of is removed.
func (n *Node) removedWhileInspected(a *Agent, method string) {
	t := n.t
	pod := n.Pod("inspected-" + strings.ToLower(method))
	id := n.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(pleg.ContainerStarted, id)
	hold, err := n.Proxy.Inject(criproxy.Fault{Method: method, On: criproxy.OnCall, Do: criproxy.Stall{}})
	t.Check(err)
	all := []*Agent{a}
	if method == "PodSandboxStatus" {
		// The agent has read the sandbox and will not again while that is ready. One
		// that knows nothing does.
		all = append(all, n.NewAgent())
	}
	// Changes that are told in no payload make the pod worth a read: a container
	// that fails to start.
	broken, err := n.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"})
	t.Check(err)
	if err := n.Start(t.ctx, broken); err == nil {
		t.Fatalf("a container with a command that does not exist started")
	}
	asked := make(chan struct{})
	go func() { // ends when the agent answers, or the scenario does
		defer close(asked)
		_, _ = a.Newer(t.ctx, pod.UID)
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
	a.WaitEvent(pleg.ContainerRemoved, id)
	a.WaitEvent(pleg.ContainerRemoved, pod.SandboxID)
	for _, agent := range all {
		agent.Converge()
		if held := agent.MustCache(); len(held) != 0 {
			t.Errorf("every pod is gone, and the cache of %s holds %v", agent.name, held)
		}
	}
	t.Logf("%s held after %v", method, held)
}

// deletePod deletes a sandbox, again and again where a runtime whose shim was
// killed fails at first.
func (n *Node) deletePod(sandboxID string) {
	n.t.Eventually(settle, "the sandbox can be deleted", func() error { return n.Delete(n.t.ctx, sandboxID) })
}

// shimOf is the PID of a sandbox's shim.
func (n *Node) shimOf(sandboxID string) int {
	for _, p := range n.target.Processes() {
		if strings.Contains(p.Command, "containerd-shim") && strings.Contains(p.Command, sandboxID) {
			return p.PID
		}
	}
	n.t.Fatalf("no shim of sandbox %s is among the run's processes", sandboxID)
	return 0
}

// pauseOf is the PID of a sandbox's own process.
func (n *Node) pauseOf(sandboxID string) int {
	answer, err := n.PodSandboxStatus(n.t.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandboxID, Verbose: true})
	n.t.Check(err)
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil || info.Pid <= 1 {
		n.t.Fatalf("the runtime does not tell the PID of sandbox %s: %v", sandboxID, err)
	}
	return info.Pid
}
