// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// EventType is the type of a pod lifecycle event. Types and meaning are the kubelet's.
type EventType string

const (
	// ContainerStarted: the container or sandbox is running.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied: the container has exited, or the sandbox is no longer ready.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved: the runtime no longer has the container or sandbox.
	ContainerRemoved EventType = "ContainerRemoved"
	// PodSync: something of the pod has changed that no other event tells: events that found the
	// outbox full, or a phase that a read took back; or a status that RequestReinspect wanted has
	// been read. The pod's status in the cache tells all.
	PodSync EventType = "PodSync"
)

// Cause is the kind of observation that an event comes from.
type Cause uint8

const (
	// CauseRead: a list or an inspection showed the change first.
	CauseRead Cause = iota
	// CauseClaim: the runtime's stream told of the change first.
	CauseClaim
	// CauseAck: a call of the agent's own made the change, and told of it first: see
	// [Generator.Calling].
	CauseAck
)

// String returns the name that logs and outputs use.
func (c Cause) String() string {
	switch c {
	case CauseClaim:
		return "claim"
	case CauseAck:
		return "ack"
	}
	return "read"
}

// Event is a pod lifecycle event. An event tells of its own phase and of all before it: a container
// that was found dead tells ContainerDied only, as the kubelet's does.
type Event struct {
	Pod  cache.UID
	Type EventType
	// Namespace and PodName are what the pod is called, ContainerName what the container is, also
	// of what has been removed: for logs and people. Empty where no read has said it; ContainerName
	// also of sandboxes, and with PodSync.
	Namespace, PodName, ContainerName string
	// ID is the container or sandbox that changed; empty with PodSync.
	ID   string
	Kind Kind
	// Cause says how the change became known.
	Cause Cause
	// Stamp is the runtime's wall-clock time of the claim (CRI created_at), zero when a read found
	// the change.
	Stamp time.Time
	// Seen is when the generator learned of the change, with a monotonic reading.
	Seen time.Time
}
