// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/embed/ledger"
)

// A ledger serves a list from memory until an event brings an ID in doubt, and again once a read
// has answered.
func Example() {
	now := time.Now()
	l := ledger.New(time.Hour)
	serve := func() {
		list, verdict := l.ServeContainers(nil, now)
		if verdict.Reason != "" {
			fmt.Println("refused:", verdict.Reason, verdict.Resolve)
			return
		}
		for _, c := range list {
			fmt.Println(c.Id, c.State)
		}
	}
	read := func(state runtimeapi.ContainerState) {
		begun := l.Begin(now) // before the call of the runtime
		l.Containers(begun, nil, []*runtimeapi.Container{{Id: "app", PodSandboxId: "box", State: state}}, now)
	}
	serve()

	l.Trust(true) // the runtime's events come in
	l.Sandboxes(l.Begin(now), nil, []*runtimeapi.PodSandbox{{Id: "box"}}, now)
	read(runtimeapi.ContainerState_CONTAINER_RUNNING)
	serve()

	l.Claim("app", ledger.ContainerKind, ledger.Exited, "") // an event says so; a read decides
	serve()
	read(runtimeapi.ContainerState_CONTAINER_EXITED)
	serve()
	// Output:
	// refused: untrusted []
	// app CONTAINER_RUNNING
	// refused: doubt [{app }]
	// app CONTAINER_EXITED
}
