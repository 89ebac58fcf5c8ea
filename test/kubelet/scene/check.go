// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"errors"
	"fmt"
	"maps"
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

// book is the true history: the runtime's, taken piece by piece. It belongs to its world's
// goroutine.
type book struct {
	state   map[string]bench.State                // of containers, by ID
	running map[group]map[string]bool             // IDs now running
	ran     map[string]int                        // containers that have run, by pod
	exits   map[string]bench.Change               // of containers, by ID, until they are timed
	gone    map[string]int64                      // when these containers were removed
	twice   []string                              // unread double starts
	total   struct{ starts, exits, removals int } // of containers
}

// group is the sandboxes or the containers of a pod.
type group struct {
	pod     string
	sandbox bool
}

func newBook() *book {
	return &book{
		state: make(map[string]bench.State), running: make(map[group]map[string]bool), ran: make(map[string]int), exits: make(map[string]bench.Change), gone: make(map[string]int64),
	}
}

// enter takes the next changes.
func (b *book) enter(changes []bench.Change) {
	for _, c := range changes {
		k := group{c.Pod, c.Sandbox}
		if c.State == bench.Running {
			if b.running[k] == nil {
				b.running[k] = make(map[string]bool)
			}
			b.running[k][c.ID] = true
			b.overlap(k)
		} else if delete(b.running[k], c.ID); len(b.running[k]) == 0 {
			delete(b.running, k)
		}
		if c.Sandbox {
			continue
		}
		before := b.state[c.ID]
		b.state[c.ID] = c.State
		if c.State == bench.Running || c.State == bench.Exited && before.Rank() < bench.Running.Rank() { // CRI-O may tell of the end first
			b.ran[c.Pod]++
			b.total.starts++
		}
		switch c.State {
		case bench.Exited:
			b.total.exits++
			if !c.Inexact {
				b.exits[c.ID] = c
			}
		case bench.Removed:
			b.total.removals++
			if _, timed := b.exits[c.ID]; timed {
				b.gone[c.ID] = c.At
			}
			if before == bench.Running {
				b.total.exits++ // nobody told of its end
			}
		}
	}
}

// overlap notes a pod with more running containers than in its manifest: of pods with a single
// container, named by the scenarios with the prefix "one-".
func (b *book) overlap(k group) {
	if strings.HasPrefix(k.pod, "one-") && len(b.running[k]) > 1 {
		b.twice = append(b.twice, fmt.Sprintf("%s (sandbox: %v): %s", k.pod, k.sandbox, strings.Join(slices.Sorted(maps.Keys(b.running[k])), " and ")))
	}
}

// runs reports whether a container of the pod runs.
func (b *book) runs(pod string) bool { return len(b.running[group{pod, false}]) > 0 }

// stopped reports whether nothing of the pods runs any more.
func (b *book) stopped(pods []string) error {
	for _, pod := range pods {
		if len(b.running[group{pod, false}])+len(b.running[group{pod, true}]) > 0 {
			return fmt.Errorf("%s is still running", pod)
		}
	}
	return nil
}
