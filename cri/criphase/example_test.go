// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criphase_test

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// A source of statuses of its own turns the runtime's answers into phases.
func Example() {
	c := &runtimeapi.Container{Id: "c1", State: runtimeapi.ContainerState_CONTAINER_EXITED}
	fmt.Println(c.Id, criphase.OfContainer(c.State))
	e := &runtimeapi.ContainerEventResponse{
		ContainerId:        "s1",
		ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT,
	}
	fmt.Println(e.ContainerId, criphase.OfEvent(e.ContainerEventType, pleg.Sandbox))
	// Output:
	// c1 Exited
	// s1 Running
}
