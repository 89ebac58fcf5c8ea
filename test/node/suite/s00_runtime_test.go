// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// observe runs no agent: it records the delay of the runtime's events, and its reports of an OOM
// kill and after a restart, to tell the runtime's share in surprising figures of other scenarios.
// The log has every event; 17-conformance has each call and each change.
func observe(t *T) {
	n := t.NewNode()
	raw := n.Record()
	// a subscription cannot be seen; what comes before it would be replayed
	t.Sleep(500 * time.Millisecond)
	pod := n.Pod("pod")
	n.tell(raw, "RunPodSandbox", nil)

	n.tell(raw, "exit 3, removed", func() {
		id := n.Container(pod, "exit", "exit", "3")
		n.Exited(id)
		t.Check(n.Remove(t.ctx, id))
	})
	n.tell(raw, "OOM kill", func() {
		id, err := n.CreateAndStart(t.ctx, pod, crikit.Spec{Name: "oom", Args: []string{"eat", "256"}, Memory: 32 << 20})
		t.Check(err)
		at := n.Exited(id)
		t.Logf("OOM kill: the status at once says %d %s", at.ExitCode, at.Reason)
		t.Sleep(time.Second)
		later := n.Exited(id)
		t.Logf("OOM kill: the status a second later says %d %s", later.ExitCode, later.Reason)
		if at.Reason != later.Reason {
			t.Figure("OOM reason", "came late, without an event")
		}
	})
	n.tell(raw, "stop and remove a sandbox with two containers", func() {
		n.Container(pod, "one", "sleep", "1h")
		n.Container(pod, "two", "sleep", "1h")
		t.Check(n.Delete(t.ctx, pod.SandboxID))
	})

	var own []time.Duration
	wrong := 0
	for _, e := range raw.Events() {
		if d := e.At.Sub(time.Unix(0, e.CreatedAt)); d > 0 {
			own = append(own, d)
		}
		if !tellsItself(e) {
			wrong++
			t.Logf("own state and type differ: %v", e.ContainerEventResponse)
		}
	}
	t.Figure("created_at→received", "%s", quantiles(own))
	if wrong > 0 {
		t.Figure("events whose own state is behind their type", "%d", wrong)
	}
	t.Figure("regressions", "%d", len(crikit.Regressions(raw.Events())))
	if n.Daemon != nil {
		n.observeRestart()
	}
}

// observeRestart records a runtime's reports after an outage: of containers ended meanwhile, and of
// those still running.
func (n *Node) observeRestart() {
	t := n.t
	pod := n.Pod("restart")
	ends := n.Container(pod, "ends", "sleep", "500ms", "4")
	lives := n.Container(pod, "lives", "sleep", "1h")
	n.StopRuntime(syscall.SIGKILL)
	t.Sleep(1500 * time.Millisecond)
	spawned := time.Now()
	t.Check(n.Daemon.Spawn())
	raw := &crikit.Recorder{}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	go func() { // ends with ctx
		for ctx.Err() == nil {
			_ = raw.Run(ctx, n.Client)
		}
	}()
	ready, stop := context.WithTimeout(t.ctx, startLimit)
	defer stop()
	t.Check(n.WaitReady(ready))
	t.Sleep(2 * time.Second)
	told := n.Exited(ends)
	t.Figure("ended while down", "told as %d %s, finished_at %+.1fs from the restart", told.ExitCode, told.Reason,
		time.Unix(0, told.FinishedAt).Sub(spawned).Seconds())
	t.Figure("events of a restart", "%s", digest(raw.Events(), map[string]string{ends: "ended", lives: "lives", pod.SandboxID: "sandbox"}))
}

// tell runs f, waits until the stream is quiet, and logs the events.
func (n *Node) tell(raw *crikit.Recorder, what string, f func()) {
	before := len(raw.Events())
	if f == nil {
		before = 0
	} else {
		f()
	}
	for count := -1; count != len(raw.Events()); {
		count = len(raw.Events())
		n.t.Sleep(500 * time.Millisecond)
	}
	n.t.Logf("%s: %s", what, digest(raw.Events()[before:], nil))
}

// digest formats events as a line.
func digest(events []crikit.Event, names map[string]string) string {
	if len(events) == 0 {
		return "none"
	}
	var words []string
	for _, e := range events {
		id := names[e.ContainerId]
		if id == "" {
			id = e.ContainerId[:6]
		}
		kind := strings.TrimSuffix(strings.TrimPrefix(e.ContainerEventType.String(), "CONTAINER_"), "_EVENT")
		var states []string
		for _, s := range e.ContainersStatuses {
			states = append(states, s.Id[:6]+"="+strings.TrimPrefix(s.State.String(), "CONTAINER_"))
			if s.Id == e.ContainerId && s.FinishedAt > 0 && kind == "STOPPED" {
				kind += fmt.Sprintf("(+%dms)", (e.CreatedAt-s.FinishedAt)/1e6)
			}
		}
		sort.Strings(states)
		sandbox := "nil"
		if e.PodSandboxStatus != nil {
			sandbox = strings.TrimPrefix(e.PodSandboxStatus.State.String(), "SANDBOX_")
		}
		words = append(words, fmt.Sprintf("%s %s {%s %s}", kind, id, sandbox, strings.Join(states, " ")))
	}
	return strings.Join(words, "; ")
}

// tellsItself reports whether an event's payload shows its own container at least
// as far as its type says.
func tellsItself(e crikit.Event) bool {
	least := map[runtimeapi.ContainerEventType]runtimeapi.ContainerState{
		runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: runtimeapi.ContainerState_CONTAINER_RUNNING,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: runtimeapi.ContainerState_CONTAINER_EXITED,
	}
	for _, s := range e.ContainersStatuses {
		if s.Id == e.ContainerId && s.State < least[e.ContainerEventType] {
			return false
		}
	}
	return true
}
