// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

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
