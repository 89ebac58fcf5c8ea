// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/report"
)

// observe runs no agent: it records what the runtime sends for each change, so
// that a figure that surprises in another scenario can be told from the runtime's
// own doing. The log has every event.
func observe(t *T) {
	n := t.NewNode()
	raw := n.Record()
	t.Sleep(500 * time.Millisecond) // a subscription cannot be seen; what comes before it would be replayed
	pod := n.Pod("pod")
	n.tell(raw, "RunPodSandbox", nil)

	var zero string
	n.tell(raw, "exit 3", func() { zero = n.Container(pod, "exit", "exit", "3"); n.Exited(zero) })
	n.tell(raw, "remove", func() { t.Check(n.Remove(t.ctx, zero)) })
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
	var broken string
	n.tell(raw, "failed start", func() {
		var err error
		broken, err = n.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"})
		if n.Traits.CreateFails {
			if err == nil {
				t.Errorf("a container with a command that does not exist was created")
			}
			return
		}
		t.Check(err)
		_ = n.Start(t.ctx, broken)
		n.Exited(broken)
	})
	if !n.Traits.CreateFails {
		n.tell(raw, "remove a container that failed to start", func() { t.Check(n.Remove(t.ctx, broken)) })
	}
	n.tell(raw, "remove a running container", func() { t.Check(n.Remove(t.ctx, n.Container(pod, "runs", "sleep", "1h"))) })
	n.tell(raw, "stop a sandbox with two containers", func() {
		n.Container(pod, "one", "sleep", "1h")
		n.Container(pod, "two", "sleep", "1h")
		t.Check(n.StopPod(t.ctx, pod.SandboxID))
	})
	n.tell(raw, "stop it again", func() { t.Check(n.StopPod(t.ctx, pod.SandboxID)) })
	n.tell(raw, "remove the sandbox", func() { t.Check(n.RemovePod(t.ctx, pod.SandboxID)) })
	n.tell(raw, "remove it again", func() { t.Check(n.RemovePod(t.ctx, pod.SandboxID)) })
	n.tell(raw, "remove a running sandbox", func() {
		running := n.Pod("running")
		n.Container(running, "c", "sleep", "1h")
		t.Check(n.RemovePod(t.ctx, running.SandboxID))
	})

	n.observeRefusals()

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
	t.Figure("created_at→received", "%s", report.Quantiles(own))
	if wrong > 0 {
		t.Figure("events whose own state is behind their type", "%d", wrong)
	}
	t.Figure("regressions", "%d", len(crikit.Regressions(raw.Events())))
	if n.Daemon != nil {
		n.observeRestart()
	}
}

// observeRefusals logs with which code the runtime answers to what it cannot do.
func (n *Node) observeRefusals() {
	t := n.t
	ctx := t.ctx
	pod := n.Pod("refusals")
	exited := n.Container(pod, "exited", "exit", "0")
	n.Exited(exited)
	runs := n.Container(pod, "runs", "sleep", "1h")
	missing := strings.Repeat("0", 64)
	asked := []struct {
		what string
		ask  func() error
	}{
		{"create under a name in use", func() error { _, err := n.Create(ctx, pod, crikit.Spec{Name: "runs"}); return err }},
		{"run a sandbox under a name in use", func() error { _, err := n.RunPod(ctx, pod.UID, pod.Name, 0); return err }},
		{"create in a sandbox that does not exist", func() error {
			gone := *pod
			gone.SandboxID = missing
			_, err := n.Create(ctx, &gone, crikit.Spec{Name: "new"})
			return err
		}},
		{"start what has exited", func() error { return n.Start(ctx, exited) }},
		{"start what runs", func() error { return n.Start(ctx, runs) }},
		{"start what does not exist", func() error { return n.Start(ctx, missing) }},
		{"stop what has exited", func() error { return n.Stop(ctx, exited, 0) }},
		{"stop what does not exist", func() error { return n.Stop(ctx, missing, 0) }},
		{"remove what does not exist", func() error { return n.Remove(ctx, missing) }},
		{"status of a container that does not exist", func() error {
			_, err := n.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: missing})
			return err
		}},
		{"status of a sandbox that does not exist", func() error {
			_, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: missing})
			return err
		}},
		{"create in a stopped sandbox", func() error {
			if err := n.StopPod(ctx, pod.SandboxID); err != nil {
				return err
			}
			_, err := n.Create(ctx, pod, crikit.Spec{Name: "late"})
			return err
		}},
	}
	for _, a := range asked {
		err := a.ask()
		for errors.Unwrap(err) != nil {
			err = errors.Unwrap(err)
		}
		t.Logf("%s: %v", a.what, status.Code(err))
	}
	t.Check(n.Delete(ctx, pod.SandboxID))
}

// observeRestart records what a runtime tells after it was down: of what ended
// meanwhile, and of what still runs.
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

// tell runs f, waits until the stream is quiet, and logs what it told.
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

// digest tells events in a line.
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
