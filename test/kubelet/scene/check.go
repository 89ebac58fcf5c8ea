// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// patience bounds the wait for an immediate action of a kubelet with enough CPU.
const patience = 90 * time.Second

// Faults in a failed scenario, beside an overdue result.
var (
	errWrongStatus = errors.New("statuses")
	errTwice       = errors.New("started twice")
)

// check waits until the kubelet's statuses equal the truth of the present pods, and then looks for
// containers started twice, for waiters, and for a generator without a stream.
func (w *World) check() {
	if !w.Kubelet.Alive() {
		fail("the kubelet has ended")
	}
	if err := eventually(w.ctx, patience, w.agree); err != nil {
		fail("%w: %w", errWrongStatus, err)
	}
	w.look()
	if twice := w.book.twice; len(twice) > 0 {
		w.book.twice = nil
		fail("%w: %s", errTwice, strings.Join(twice, "; "))
	}
	if !w.Variant.Ours {
		return
	}
	w.eventually(patience, func() {
		m := w.metrics()
		if n, ok := m["evented_pleg_waiters"]; !ok || n != 0 {
			fail("evented_pleg_waiters is %v (served: %v), want 0", n, ok)
		}
		if m[`evented_pleg_stream_state{state="Connected"}`] != 1 {
			fail("the event stream is not connected")
		}
	})
}

// agree compares the kubelet's status of each container with the runtime's.
func (w *World) agree() {
	w.look()
	pods := w.pods()
	var wrong []string
	for name, status := range pods {
		if !w.there[name] {
			wrong = append(wrong, name+": still there")
			continue
		}
		for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
			if s := contradiction(c, w.book.state); s != "" {
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
		fail("%d wrong: %s", len(wrong), strings.Join(wrong[:min(5, len(wrong))], "; "))
	}
}

// ranOnly checks that each of the pods, which are never restarted, has run the number of
// containers.
func (w *World) ranOnly(want int, pods ...string) {
	w.look()
	for _, name := range pods {
		if n := w.book.ran[name]; n != want {
			fail("%w: %s: %d containers ran, want %d", errTwice, name, n, want)
		}
	}
}

// contradiction returns the difference of a container's status from the truth, empty without any.
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
