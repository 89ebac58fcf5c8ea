// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

// Phase is how far a container or a sandbox has come in its life. Phases of one ID only move
// forward, because runtimes never reuse an ID: a container is Created, Running, Exited, Removed; a
// sandbox is Running (the CRI's READY), Exited (the CRI's NOTREADY), Removed. Two reports of one ID
// are therefore merged by taking the later phase.
type Phase uint8

const (
	// PhaseUnknown is an ID that the runtime shows without knowing its state (CRI CONTAINER_UNKNOWN).
	// It says nothing of how far the life has come: it neither confirms nor overrules another phase.
	// But it is what the runtime shows, and so what readers of the cache get.
	PhaseUnknown Phase = iota
	// PhaseCreated is a container that has not been started (CRI CONTAINER_CREATED).
	PhaseCreated
	// PhaseRunning is a running container (CRI CONTAINER_RUNNING) or a ready sandbox (CRI
	// SANDBOX_READY).
	PhaseRunning
	// PhaseExited is an ended container (CRI CONTAINER_EXITED) or a sandbox that is not ready (CRI
	// SANDBOX_NOTREADY).
	PhaseExited
	// PhaseRemoved is an ID that the runtime no longer has.
	PhaseRemoved
)

// String returns the name that logs and scripts use.
func (p Phase) String() string {
	switch p {
	case PhaseUnknown:
		return "Unknown"
	case PhaseCreated:
		return "Created"
	case PhaseRunning:
		return "Running"
	case PhaseExited:
		return "Exited"
	case PhaseRemoved:
		return "Removed"
	}
	return "Phase(?)"
}

// Kind tells a container from a sandbox.
type Kind uint8

const (
	// Container is an application, init or ephemeral container.
	Container Kind = iota
	// Sandbox is a pod sandbox.
	Sandbox
)

// String returns the name that logs and scripts use.
func (k Kind) String() string {
	if k == Sandbox {
		return "sandbox"
	}
	return "container"
}
