// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Pod is the content of a pod's status, for [Config.View].
type Pod struct {
	Ref
	// Labels are the pod's labels, for [Choice]. The kubelet hands them to the runtime.
	Labels     map[string]string
	Sandboxes  []Sandbox
	Containers []Container
	// Unread are the IDs of the runtime whose status could not be read: they are missing above.
	Unread []string
}

// Ref names a pod.
type Ref struct {
	UID       cache.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

// Sandbox is a sandbox in a status.
type Sandbox struct {
	ID    string
	Ready bool
}

// Container is a container in a status.
type Container struct {
	ID   string
	Name string
	// SandboxID is the container's sandbox; empty if unknown.
	SandboxID string
	// Attempt counts the containers of the same name made for the pod, from 0.
	Attempt uint32
	Phase   pleg.Phase
	// CreatedAt, StartedAt and FinishedAt are the runtime's stamps, zero if not reached.
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	// ExitCode holds in PhaseExited.
	ExitCode int32
	// Reason and Message are the runtime's, as sent: unchecked text.
	Reason  string
	Message string
	// MemoryLimit is in bytes; 0: none, or unknown.
	MemoryLimit int64
}

// FromCRI is the View of statuses from package cri.
func FromCRI(status *cri.PodStatus) Pod {
	pod := Pod{Ref: Ref{UID: status.UID(), Namespace: status.Namespace(), Name: status.Name()}}
	pod.Unread = status.Unread()
	for _, s := range status.Sandboxes() { // the newest first
		if pod.Labels == nil {
			pod.Labels = s.Labels
		}
		pod.Sandboxes = append(pod.Sandboxes, Sandbox{ID: s.ID, Ready: s.Ready()})
	}
	for _, c := range status.Containers() {
		container := Container{
			ID:         c.ID,
			Name:       c.Name,
			SandboxID:  c.SandboxID,
			Attempt:    c.Attempt,
			Phase:      c.Phase,
			CreatedAt:  c.CreatedAt,
			StartedAt:  c.StartedAt,
			FinishedAt: c.FinishedAt,
			ExitCode:   c.ExitCode,
			Reason:     c.Reason,
			Message:    c.Message,
		}
		if container.SandboxID == "" && len(pod.Sandboxes) == 1 {
			container.SandboxID = pod.Sandboxes[0].ID
		}
		if c.Resources != nil {
			container.MemoryLimit = c.Resources.MemoryLimit
		}
		pod.Containers = append(pod.Containers, container)
	}
	return pod
}

// empty reports whether the runtime shows nothing of the pod.
func (p *Pod) empty() bool { return len(p.Sandboxes)+len(p.Containers)+len(p.Unread) == 0 }
