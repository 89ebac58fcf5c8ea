// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criphase

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestEveryValueHasAPhase holds the functions against all states and types of events of the CRI,
// and against all phases: a new value of either side has its place here, or fails.
func TestEveryValueHasAPhase(t *testing.T) {
	states := make(map[pleg.Phase]string)
	for n, name := range runtimeapi.ContainerState_name {
		states[OfContainer(runtimeapi.ContainerState(n))] += name
	}
	types := make(map[pleg.Phase]string)
	for n, name := range runtimeapi.ContainerEventType_name {
		types[OfEvent(runtimeapi.ContainerEventType(n), pleg.Container)] += name
	}
	for _, of := range []struct {
		function string
		values   map[pleg.Phase]string
		last     pleg.Phase
		unknown  string
	}{
		{"OfContainer", states, pleg.PhaseExited, "CONTAINER_UNKNOWN"},
		{"OfEvent", types, pleg.PhaseRemoved, ""},
	} {
		if got := of.values[pleg.PhaseUnknown]; got != of.unknown {
			more := strings.ReplaceAll(got, of.unknown, "")
			t.Errorf("%s returns no phase for %s: give it a case", of.function, more)
		}
		for p := pleg.PhaseCreated; p <= of.last; p++ {
			if of.values[p] == "" {
				t.Errorf("%s returns %v for no value of the CRI: give it a case", of.function, p)
			}
		}
	}
}

// TestSandboxes holds the phases of sandboxes, which are never created: they are announced when
// ready.
func TestSandboxes(t *testing.T) {
	for s, want := range map[runtimeapi.PodSandboxState]pleg.Phase{
		runtimeapi.PodSandboxState_SANDBOX_READY:    pleg.PhaseRunning,
		runtimeapi.PodSandboxState_SANDBOX_NOTREADY: pleg.PhaseExited,
		7: pleg.PhaseExited,
	} {
		if got := OfSandbox(s); got != want {
			t.Errorf("the state %v is %v, want %v", s, got, want)
		}
	}
	for e, want := range map[runtimeapi.ContainerEventType]pleg.Phase{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: pleg.PhaseRunning,
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: pleg.PhaseRemoved,
	} {
		if got := OfEvent(e, pleg.Sandbox); got != want {
			t.Errorf("an event %v of a sandbox is %v, want %v", e, got, want)
		}
	}
}
