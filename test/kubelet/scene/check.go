// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// patience bounds the wait for something that a kubelet does at once when it is not starved of CPU.
const patience = 90 * time.Second

// Check waits until the kubelet's statuses say what is true of the pods that are there, and then looks whether a container was started twice.
func (w *World) Check(ctx context.Context) error {
	if !w.Kubelet.Alive() {
		return fmt.Errorf("the kubelet has ended")
	}
	if err := eventually(ctx, patience, func() error { return w.agree(ctx) }); err != nil {
		return fmt.Errorf("statuses: %w", err)
	}
	changes, err := w.history(ctx)
	if err != nil {
		return err
	}
	if twice := overlaps(changes); len(twice) > 0 {
		return fmt.Errorf("started twice: %s", strings.Join(twice, "; "))
	}
	if !w.Variant.Ours {
		return nil
	}
	return eventually(ctx, patience, func() error {
		m, err := w.Kubelet.Metrics(ctx)
		if err != nil {
			return err
		}
		if n, ok := m["evented_pleg_waiters"]; !ok || n != 0 {
			return fmt.Errorf("evented_pleg_waiters is %v (served: %v), want 0", n, ok)
		}
		return nil
	})
}

// agree compares what the kubelet says of each container with what the runtime has.
func (w *World) agree(ctx context.Context) error {
	changes, err := w.history(ctx)
	if err != nil {
		return err
	}
	state := make(map[string]bench.State)
	for _, c := range changes {
		if c.Sandbox {
			continue
		}
		state[c.ID] = c.State
	}
	pods, err := w.pods(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	for name, status := range pods {
		if !w.there[name] {
			wrong = append(wrong, name+": still there")
			continue
		}
		for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
			if s := contradiction(c, state); s != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s: %s", name, c.Name, s))
			}
		}
	}
	for name := range w.there {
		if _, seen := pods[name]; !seen {
			wrong = append(wrong, name+": missing")
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("%d wrong: %s", len(wrong), strings.Join(wrong[:min(5, len(wrong))], "; "))
	}
	return nil
}

// contradiction says in what a container's status differs from the truth, empty if in nothing.
func contradiction(c corev1.ContainerStatus, state map[string]bench.State) string {
	if r := c.State.Running; r != nil && state[bare(c.ContainerID)] != bench.Running {
		return fmt.Sprintf("is said to be running and is %s", state[bare(c.ContainerID)])
	}
	if t := c.State.Terminated; t != nil && t.ContainerID != "" {
		if s := state[bare(t.ContainerID)]; s != bench.Exited && s != bench.Removed {
			return fmt.Sprintf("is said to be terminated and is %s", s)
		}
	}
	if c.State.Waiting != nil && c.ContainerID != "" && state[bare(c.ContainerID)] == bench.Running {
		return fmt.Sprintf("is said to be waiting (%s) and is running", c.State.Waiting.Reason)
	}
	return ""
}

// overlaps finds pods that had more containers, or sandboxes, running at once than their manifest has: of pods with one container, which the scenarios name
// with the prefix "one-".
func overlaps(changes []bench.Change) []string {
	type key struct {
		pod     string
		sandbox bool
	}
	running := make(map[key]map[string]bool)
	var twice []string
	for _, c := range changes {
		k := key{c.Pod, c.Sandbox}
		if !strings.HasPrefix(c.Pod, "one-") {
			continue
		}
		if running[k] == nil {
			running[k] = make(map[string]bool)
		}
		if c.State == bench.Running {
			running[k][c.ID] = true
			if len(running[k]) > 1 {
				twice = append(twice, fmt.Sprintf("%s (sandbox: %v)", c.Pod, c.Sandbox))
			}
		} else {
			delete(running[k], c.ID)
		}
	}
	return twice
}

// stopped says that nothing of the pods runs any more.
func stopped(changes []bench.Change, pods []string) error {
	running := make(map[string]string)
	for _, c := range changes {
		if c.State == bench.Running && slices.Contains(pods, c.Pod) {
			running[c.ID] = c.Pod
		} else {
			delete(running, c.ID)
		}
	}
	for _, pod := range running {
		return fmt.Errorf("%s is still running", pod)
	}
	return nil
}

// starts counts the containers of the pod that ran.
func starts(changes []bench.Change, uid string) int {
	n := 0
	for _, c := range changes {
		if c.Pod == uid && !c.Sandbox && c.State == bench.Running {
			n++
		}
	}
	return n
}
