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

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/pleg/plegtest"
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
	if err := w.book.twice(); err != nil {
		fail("%w: %w", errTwice, err)
	}
	if !w.Variant.Ours {
		return
	}
	w.eventually(patience, func() {
		m := w.metrics()
		if n, ok := m["kubelet_evented_pleg_waiters"]; !ok || n != 0 {
			fail("kubelet_evented_pleg_waiters is %v (served: %v), want 0", n, ok)
		}
		if m[`kubelet_evented_pleg_stream_state{state="connected"}`] != 1 {
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
func contradiction(c corev1.ContainerStatus, state map[string]pleg.Phase) string {
	if r := c.State.Running; r != nil && state[bare(c.ContainerID)] != pleg.PhaseRunning {
		return fmt.Sprintf("is said to be running and is %s", state[bare(c.ContainerID)])
	}
	if t := c.State.Terminated; t != nil && t.ContainerID != "" {
		if s := state[bare(t.ContainerID)]; s != pleg.PhaseExited && s != pleg.PhaseRemoved {
			return fmt.Sprintf("is said to be terminated and is %s", s)
		}
	}
	if c.State.Waiting != nil && c.ContainerID != "" && state[bare(c.ContainerID)] == pleg.PhaseRunning {
		return fmt.Sprintf("is said to be waiting (%s) and is running", c.State.Waiting.Reason)
	}
	return ""
}

// book is the true history: the runtime's, taken piece by piece. It belongs to its world's
// goroutine.
type book struct {
	judge  plegtest.Checker                      // knows what runs, and finds double starts
	judged int                                   // double starts that were reported
	state  map[string]pleg.Phase                 // of containers, by ID
	ran    map[string]int                        // containers that have run, by pod
	exits  map[string]bench.Change               // of containers, by ID, until they are timed
	gone   map[string]int64                      // when these containers were removed
	total  struct{ starts, exits, removals int } // of containers
}

func newBook() *book {
	return &book{
		state: make(map[string]pleg.Phase),
		ran:   make(map[string]int),
		exits: make(map[string]bench.Change),
		gone:  make(map[string]int64),
	}
}

// enter takes the next changes.
func (b *book) enter(changes []bench.Change) {
	for _, c := range changes {
		b.judge.Changed(cache.UID(c.Pod), c.Item())
		if c.Sandbox {
			continue
		}
		before := b.state[c.ID]
		b.state[c.ID] = c.State
		if c.State == pleg.PhaseRunning ||
			c.State == pleg.PhaseExited && before < pleg.PhaseRunning { // CRI-O may tell of the end first
			b.ran[c.Pod]++
			b.total.starts++
		}
		switch c.State {
		case pleg.PhaseExited:
			b.total.exits++
			if !c.Inexact {
				b.exits[c.ID] = c
			}
		case pleg.PhaseRemoved:
			b.total.removals++
			if _, timed := b.exits[c.ID]; timed {
				b.gone[c.ID] = c.At
			}
			if before == pleg.PhaseRunning {
				b.total.exits++ // nobody told of its end
			}
		}
	}
}

// twice returns the double starts since its last call.
func (b *book) twice() error {
	found := b.judge.Violations()[b.judged:]
	b.judged += len(found)
	var errs []error
	for _, v := range found {
		errs = append(errs, v)
	}
	return errors.Join(errs...)
}

// runs reports whether a container of the pod runs.
func (b *book) runs(pod string) bool {
	return slices.ContainsFunc(
		b.judge.Running(cache.UID(pod)),
		func(i pleg.Item) bool { return i.Kind == pleg.Container },
	)
}

// stopped reports whether nothing of the pods runs any more.
func (b *book) stopped(pods []string) error {
	for _, pod := range pods {
		if len(b.judge.Running(cache.UID(pod))) > 0 {
			return fmt.Errorf("%s is still running", pod)
		}
	}
	return nil
}
