// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestEveryEventIsAClaim wants a claim of each type of event of the CRI, for both kinds, with each
// state in its payload. The phases are those of criphase, which a new state or type makes fail.
func TestEveryEventIsAClaim(t *testing.T) {
	for n, name := range runtimeapi.ContainerEventType_name {
		e := &runtimeapi.ContainerEventResponse{
			ContainerId:        "s",
			ContainerEventType: runtimeapi.ContainerEventType(n),
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s"},
		}
		for n, name := range runtimeapi.ContainerState_name {
			e.ContainersStatuses = append(
				e.ContainersStatuses,
				&runtimeapi.ContainerStatus{Id: name, State: runtimeapi.ContainerState(n)},
			)
		}
		for id, kind := range map[string]pleg.Kind{"s": pleg.Sandbox, "c": pleg.Container} {
			e.ContainerId = id
			c, ok := claim[any](e)
			want := pleg.Item{ID: id, Kind: kind, Phase: criphase.OfEvent(e.ContainerEventType, kind)}
			if !ok || c.Item != want {
				t.Errorf("an event %s claims %v (%t), want %v", name, c.Item, ok, want)
			}
			for _, item := range c.Payload {
				state, ok := runtimeapi.ContainerState_value[item.ID]
				if ok && item.Phase != criphase.OfContainer(runtimeapi.ContainerState(state)) {
					t.Errorf("the payload shows %v", item)
				}
			}
		}
	}
}
