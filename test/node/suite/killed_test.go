// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// killed ends the keepers of a pod, a sandbox and a container, each behind the runtime's back, and
// removes a pod during its inspection.
func killed(t *T) {
	a := t.Connect()

	if t.Traits.KeeperTells { // the sandbox's STOPPED comes with the container still RUNNING
		a.kill("shim", func(pod *crikit.Pod, _ string) int { return t.keeperOf(pod.SandboxID) }, true, true)
	} else {
		a.killMonitor()
	}
	if t.Traits.SandboxProcess { // the container may live on
		a.kill("pause", func(pod *crikit.Pod, _ string) int { return t.pauseOf(pod.SandboxID) }, true, false)
	}
	a.kill("container", func(_ *crikit.Pod, id string) int { return t.pidOf(id) }, false, true)

	// The inspection: held in the proxy until the pod is gone.
	methods := []string{"ListContainers", "PodSandboxStatus"}
	if !t.Traits.StatusHasContainers { // otherwise nobody asks for the containers' own
		methods = append(methods, "ContainerStatus")
	}
	for _, method := range methods {
		a.removedWhileInspected(method)
	}
}

// runs makes a pod with a running container.
func (a *Agent) runs(name string) (pod *crikit.Pod, id string) {
	pod = a.t.Pod(name)
	id = a.t.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(pleg.PhaseRunning, id)
	return pod, id
}

// killMonitor kills a container's monitor, and then the container: the runtime notices neither, the
// agent shows the runtime's state, and an examination of the node tells.
func (a *Agent) killMonitor() {
	t := a.t
	pod, id := a.runs("monitor")
	process := t.pidOf(id)
	if unseen := t.unseenEnds(); len(unseen) > 0 {
		t.Errorf("before, doctor says %v", unseen)
	}
	t.Check(syscall.Kill(t.keeperOf(id), syscall.SIGKILL))
	t.Check(syscall.Kill(process, syscall.SIGKILL))
	t.Sleep(3 * time.Second)
	a.Converge()
	shown := bench.Find(a.Cache(), pod.UID, id)
	t.Figure(
		"monitor and container killed",
		"the runtime says %s (%d %s)",
		shown.State,
		shown.ExitCode,
		shown.Reason,
	)
	unseen := t.unseenEnds()
	if shown.State == pleg.PhaseRunning && (len(unseen) != 1 || !strings.Contains(fmt.Sprint(unseen), id)) {
		t.Errorf("the runtime says %s of %s, whose process was killed, and doctor %v", shown.State, id, unseen)
	}
	t.deletePod(pod)
	a.deleted(pod, id)
	if unseen := t.unseenEnds(); len(unseen) > 0 {
		t.Errorf("after, doctor says %v", unseen)
	}
}

// unseenEnds examines the node, and returns the findings about ends that the runtime has not seen.
func (t *T) unseenEnds() (unseen []doctor.Finding) {
	socket := strings.TrimPrefix(t.Endpoint, "unix://")
	r := doctor.Examine(t.ctx, doctor.Options{
		Endpoint: t.Endpoint,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		Within: 4 * time.Second,
		Host:   &doctor.Machine{Socket: socket},
	})
	for _, f := range r.Findings {
		if f.ID == "end-unseen" {
			unseen = append(unseen, f)
		}
	}
	return unseen
}

// kill kills a process of a pod, chosen by the pod and its container, and demands the ends that the
// runtime tells of then.
func (a *Agent) kill(name string, victim func(*crikit.Pod, string) int, sandboxEnds, containerEnds bool) {
	t := a.t
	pod, id := a.runs(name)
	t.Check(syscall.Kill(victim(pod, id), syscall.SIGKILL))
	began := time.Now()
	if sandboxEnds {
		died := a.WaitEvent(pleg.PhaseExited, pod.SandboxID)
		t.Figure(name+" killed→sandbox died", "%dms", since(began, died.At).Milliseconds())
	}
	if containerEnds {
		died := a.WaitEvent(pleg.PhaseExited, id)
		a.Converge()
		held := bench.Find(a.Cache(), pod.UID, id)
		t.Figure(
			name+" killed→container died",
			"%dms (%d %s)",
			since(began, died.At).Milliseconds(),
			held.ExitCode,
			held.Reason,
		)
		if !sandboxEnds && held.ExitCode != 137 {
			t.Errorf("a container whose process was killed is held as %v, want exit code 137", held)
		}
	}
	a.Converge()
	t.deletePod(pod)
	a.deleted(pod, id)
	a.WaitEvent(pleg.PhaseExited, id)
}

// deleted waits until the agent has delivered the end of a pod.
func (a *Agent) deleted(pod *crikit.Pod, id string) {
	a.WaitEvent(pleg.PhaseRemoved, id)
	a.WaitEvent(pleg.PhaseRemoved, pod.SandboxID)
	a.Converge()
}

// deletePod deletes a sandbox, again and again on a runtime that fails at first after its shim's
// death.
func (t *T) deletePod(pod *crikit.Pod) {
	t.Eventually("the sandbox can be deleted", func() error { return t.Delete(t.ctx, pod.SandboxID) })
}

// removedWhileInspected holds the agent's calls of a method while a wanted pod is removed.
func (a *Agent) removedWhileInspected(method string) {
	t := a.t
	pod, id := a.runs("inspected-" + strings.ToLower(method))
	hold := t.Proxy.Inject(criproxy.Fault{Method: method, Do: criproxy.Hold{}})
	all := []*Agent{a}
	if method == "PodSandboxStatus" {
		// The agent has read the sandbox and will not read it again while ready. A new agent does.
		all = append(all, t.NewAgent())
	}
	// Changes missing in every payload cause a read of the pod: a container that fails to start.
	// Where such a container cannot even be created, the question below does.
	if !t.Traits.CreateFails {
		t.failedStart(pod)
	}
	asked := make(chan struct{})
	go func() { // ends when the agent answers, or the scenario does
		defer close(asked)
		_, _ = child.Ask[worker.Newer](t.ctx, a.Calls, "Newer", pod.UID)
	}()
	t.Eventually("the agent calls "+method, func() error {
		if hold.Hits() == 0 {
			return fmt.Errorf("not called")
		}
		return nil
	})
	t.deletePod(pod)
	hold.Remove()
	<-asked
	a.deleted(pod, id)
	for _, agent := range all {
		agent.Empty()
	}
}
