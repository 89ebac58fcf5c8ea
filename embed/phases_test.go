// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"maps"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/embed/ledger"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestEachPhaseHasItsStateOfTheCRI holds the readers of the CRI for kubelets against all its states
// and types of events, and against all phases: a new state of either side is handled, or fails
// here.
func TestEachPhaseHasItsStateOfTheCRI(t *testing.T) {
	states := make(map[string]pleg.Phase)
	served := make(map[pleg.Phase]ledger.Phase)
	for n, name := range runtimeapi.ContainerState_name {
		phase := containerPhase(runtimeapi.ContainerState(n))
		states[name] = phase
		served[phase] = ledger.ContainerPhase(runtimeapi.ContainerState(n))
	}
	types := make(map[string]pleg.Phase)
	for n, name := range runtimeapi.ContainerEventType_name {
		c, ok := claim[any](
			&runtimeapi.ContainerEventResponse{
				ContainerId:        "c",
				ContainerEventType: runtimeapi.ContainerEventType(n),
			},
		)
		if !ok {
			t.Errorf("an event %s is dropped", name)
		}
		types[name] = c.Item.Phase
	}
	for _, of := range []struct {
		phases map[string]pleg.Phase
		last   pleg.Phase
	}{{states, pleg.PhaseExited}, {types, pleg.PhaseRemoved}} {
		for name, phase := range of.phases {
			if phase == pleg.PhaseUnknown && !strings.HasSuffix(name, "UNKNOWN") {
				t.Errorf("%s is no phase", name)
			}
		}
		reached := slices.Collect(maps.Values(of.phases))
		for p := pleg.PhaseCreated; p <= of.last; p++ {
			if !slices.Contains(reached, p) {
				t.Errorf("none of %v is %v", slices.Sorted(maps.Keys(of.phases)), p)
			}
		}
	}
	for p := pleg.PhaseUnknown; p <= pleg.PhaseExited; p++ {
		if served[p] != ledger.Phase(p) {
			t.Errorf("%v is phase %d of package pleg and %d of the ledger", p, p, served[p])
		}
	}
}
