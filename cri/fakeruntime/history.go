// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"
	"time"
)

// State is the state of a container or of a sandbox, in the runtime's report.
type State uint8

const (
	StateNone     State = iota // not made yet
	StateCreated               // a container without a start
	StateRunning               // a running container
	StateExited                // an ended container
	StateUnknown               // a container of which the runtime has lost track
	StateReady                 // a ready sandbox
	StateNotReady              // a stopped or dead sandbox
	StateRemoved               // gone from every list
)

var stateNames = [...]string{"None", "Created", "Running", "Exited", "Unknown", "Ready", "NotReady", "Removed"}

// String returns the name of the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "invalid"
}

// enum is the runtime.v1.ContainerState, or for a sandbox the runtime.v1.PodSandboxState.
func (s State) enum() int64 {
	switch s {
	case StateCreated, StateReady:
		return 0
	case StateRunning, StateNotReady:
		return 1
	case StateExited:
		return 2
	}
	return 3
}

// Emission is the fate of a change's event.
type Emission uint8

const (
	// NoEvent: the profile has no such event, runtimes do not report the change, or the runtime was
	// down.
	NoEvent Emission = iota
	// Emitted: the event was given to the stream, or will be (the faults delay, swap-start-stop and
	// swap-stop-delete).
	Emitted
	// Faulted: a fault suppressed the event (drop, silent-exit).
	Faulted
	// Discarded: no room in the runtime's queue, or no subscriber.
	Discarded
	// Lost: emitted, and then expired in the backlog, or held by a broken stream, or lost in a
	// restart.
	Lost
)

var emissionNames = [...]string{"NoEvent", "Emitted", "Faulted", "Discarded", "Lost"}

// String returns the name of the emission.
func (e Emission) String() string {
	if int(e) < len(emissionNames) {
		return emissionNames[e]
	}
	return "invalid"
}

// A Change is an entry of the authoritative history: a container or sandbox went from a state to
// another.
type Change struct {
	// Seq numbers the changes, from 0, without gaps.
	Seq uint64
	// Time is the time of the change. It has a monotonic reading; changes are in its order.
	Time time.Time
	// PodUID and SandboxID are its pod and sandbox. ContainerID is empty for a change of the
	// sandbox.
	PodUID      string
	SandboxID   string
	ContainerID string
	// ContainerName is the container's, empty likewise.
	ContainerName string
	// Old and New are the states before and after. A sandbox removed while ready goes through
	// NotReady first, a running container through Exited.
	Old State
	New State
	// ExitCode is set when New is StateExited.
	ExitCode int32
	// Event is the fate of the event. Emitted can still turn into Lost while the event is under way.
	Event Emission
}

// history keeps the last changes. The runtime's mutex guards it.
type history struct {
	limit   int // < 0: none
	changes []Change
	first   uint64 // Seq of the oldest
}

func (h *history) next() uint64 { return h.first + uint64(len(h.changes)) }

func (h *history) add(c Change) uint64 {
	c.Seq = h.next()
	h.changes = append(h.changes, c)
	if h.limit >= 0 && len(h.changes) > h.limit {
		h.changes = h.changes[1:] // the next growth drops it
		h.first++
	}
	return c.Seq
}

// at returns the change with the number, or nil if dropped.
func (h *history) at(seq uint64) *Change {
	if seq < h.first || seq >= h.next() {
		return nil
	}
	return &h.changes[seq-h.first]
}

// History returns the changes with Seq ≥ since, oldest first, and the Seq of the next change. If
// the first returned change has a larger Seq than since, those between were dropped because of
// Config.HistoryLimit.
func (rt *Runtime) History(since uint64) (changes []Change, next uint64) {
	rt.lock()
	defer rt.mu.Unlock()
	h := &rt.history
	since = min(max(since, h.first), h.next())
	return slices.Clone(h.changes[since-h.first:]), h.next()
}
