// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// event makes a STOPPED event of container x with the states of a, b, ….
func event(stamp int64, states ...runtimeapi.ContainerState) Event {
	message := &runtimeapi.ContainerEventResponse{
		ContainerId: "x", CreatedAt: stamp, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
	}
	for i, state := range states {
		message.ContainersStatuses = append(message.ContainersStatuses, &runtimeapi.ContainerStatus{
			Id: string(rune('a' + i)), State: state,
		})
	}
	return Event{ContainerEventResponse: message}
}

func deleted(stamp int64, id string) Event {
	return Event{ContainerEventResponse: &runtimeapi.ContainerEventResponse{
		ContainerId: id, CreatedAt: stamp, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	}}
}

func TestRegressions(t *testing.T) {
	tests := []struct {
		name   string
		events []Event
		want   []Regression
	}{
		{"forward only", []Event{event(1, created), event(2, running, created), event(3, exited, running)}, nil},
		{"the same again", []Event{event(1, running), event(2, running)}, nil},
		{"unknown is no step back", []Event{event(1, running), event(2, unknown), event(3, running)}, nil},
		{
			"an older payload with a newer stamp", []Event{event(1, exited), event(2, running)},
			[]Regression{{1, "a", "CONTAINER_EXITED", "CONTAINER_RUNNING", true}},
		},
		{
			"an older payload with an older stamp", []Event{event(2, exited), event(1, running)},
			[]Regression{{1, "a", "CONTAINER_EXITED", "CONTAINER_RUNNING", false}},
		},
		{
			"a deleted container reappears", []Event{event(1, exited), deleted(2, "a"), event(3, exited)},
			[]Regression{{2, "a", "REMOVED", "CONTAINER_EXITED", true}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Regressions(tt.events)); diff != "" {
				t.Errorf("regressions (-want +got):\n%s", diff)
			}
		})
	}
}
