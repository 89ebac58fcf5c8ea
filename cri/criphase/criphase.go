// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package criphase maps the states and the types of events of the CRI to phases.
//
// # Model
//
// Each function takes a value of the types generated from the CRI API and returns its phase. A
// state of a container, or a type of an event, of a later CRI is [pleg.PhaseUnknown]: it claims
// nothing, and the statuses are read. A sandbox in such a state has exited, as for a kubelet, where
// package cri has a function of its own and takes the sandbox for unknown: a client may read more,
// and a kubelet asks only whether the sandbox is ready. Nothing else turns these types into phases.
//
// # Concurrency
//
// The functions are pure.
//
// # Errors
//
// None.
package criphase

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// OfContainer returns the phase of a container in a state.
func OfContainer(s runtimeapi.ContainerState) pleg.Phase {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pleg.PhaseCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pleg.PhaseRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pleg.PhaseExited
	}
	return pleg.PhaseUnknown // CONTAINER_UNKNOWN, and additions of later CRI versions
}

// OfSandbox returns the phase of a sandbox in a state. Whatever is not ready has exited, also in a
// state of a later CRI.
func OfSandbox(s runtimeapi.PodSandboxState) pleg.Phase {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return pleg.PhaseRunning
	}
	return pleg.PhaseExited
}

// OfEvent returns the phase that an event of a type announces for an ID of a kind.
func OfEvent(t runtimeapi.ContainerEventType, kind pleg.Kind) pleg.Phase {
	switch t {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		if kind == pleg.Sandbox {
			return pleg.PhaseRunning // a sandbox is announced when ready
		}
		return pleg.PhaseCreated
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return pleg.PhaseRunning
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return pleg.PhaseExited
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return pleg.PhaseRemoved
	}
	return pleg.PhaseUnknown // additions of later CRI versions
}
