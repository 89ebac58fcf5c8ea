// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package view is the one form in which the node e2e tests compare what a
// runtime shows with what an agent's cache holds.
//
// # Model
//
// A Node is a set of pods by UID; a pod is its sandboxes and its containers by
// ID, each with its state in the CRI's own words. It holds what a pod worker
// acts on and nothing that two correct observers may tell differently.
//
// # Concurrency
//
// Plain values; the caller owns them.
package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Node is every pod that an observer knows of, by pod UID.
type Node map[string]Pod

// A Pod is what an observer knows of one pod.
type Pod struct {
	// Sandboxes maps a sandbox's ID to its CRI state, for instance
	// SANDBOX_READY.
	Sandboxes map[string]string `json:"sandboxes,omitempty"`
	// Containers maps a container's ID to it.
	Containers map[string]Container `json:"containers,omitempty"`
}

// A Container is what an observer knows of one container.
type Container struct {
	Name  string `json:"name"`
	State string `json:"state"` // the CRI's name, for instance CONTAINER_EXITED
	// ExitCode is meaningful when State is CONTAINER_EXITED.
	ExitCode int32 `json:"exitCode"`
	// Reason is the runtime's, for instance Completed or OOMKilled. Runtimes may
	// change it after the exit without any event, so Diff leaves it out.
	Reason string `json:"reason,omitempty"`
}

// Add returns the pod with the UID, made and stored if it was absent.
func (n Node) Add(uid string) Pod {
	pod, ok := n[uid]
	if !ok {
		pod = Pod{Sandboxes: map[string]string{}, Containers: map[string]Container{}}
		n[uid] = pod
	}
	return pod
}

// Diff says in lines how got differs from want. Pods with nothing in them are
// as good as absent. Empty: no difference.
func Diff(want, got Node) []string {
	var lines []string
	for _, uid := range keys(want, got) {
		w, g := want[uid], got[uid]
		if empty(w) && empty(g) {
			continue
		}
		switch {
		case empty(g):
			lines = append(lines, fmt.Sprintf("pod %s: missing, want %s", uid, w))
			continue
		case empty(w):
			lines = append(lines, fmt.Sprintf("pod %s: not there any more, but held as %s", uid, g))
			continue
		}
		for _, id := range keys(w.Sandboxes, g.Sandboxes) {
			if w.Sandboxes[id] != g.Sandboxes[id] {
				lines = append(lines, fmt.Sprintf("pod %s: sandbox %s: want %s, got %s", uid, short(id), word(w.Sandboxes[id]), word(g.Sandboxes[id])))
			}
		}
		for _, id := range keys(w.Containers, g.Containers) {
			if key(w.Containers[id]) != key(g.Containers[id]) {
				lines = append(lines, fmt.Sprintf("pod %s: container %s: want %s, got %s", uid, short(id), w.Containers[id], g.Containers[id]))
			}
		}
	}
	return lines
}

// String tells the pod in one line.
func (p Pod) String() string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(p.Sandboxes)) {
		parts = append(parts, "sandbox "+short(id)+" "+word(p.Sandboxes[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(p.Containers)) {
		parts = append(parts, "container "+short(id)+" "+p.Containers[id].String())
	}
	return strings.Join(parts, ", ")
}

// String tells the container in a few words.
func (c Container) String() string {
	if c == (Container{}) {
		return "absent"
	}
	if c.State == "CONTAINER_EXITED" {
		return fmt.Sprintf("%s %s(%d %s)", c.Name, c.State, c.ExitCode, c.Reason)
	}
	return c.Name + " " + c.State
}

// key is the part of a container that Diff compares.
func key(c Container) Container {
	c.Reason = ""
	return c
}

func word(state string) string {
	if state == "" {
		return "absent"
	}
	return state
}

func empty(p Pod) bool { return len(p.Sandboxes) == 0 && len(p.Containers) == 0 }

func short(id string) string { return id[:min(12, len(id))] }

func keys[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
