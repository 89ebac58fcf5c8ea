// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The figures of docs/performance.md are of messages of these sizes. Whoever changes the payload
// changes them too.
func TestSizesAreAsDocumented(t *testing.T) {
	n := New(Config{Pods: 100, Containers: 2})
	for _, c := range []struct {
		what        string
		bytes, want int
	}{
		{"a listed sandbox", len(n.list(sandboxes)) / 100, 1150},
		{"a listed container", len(n.list(containers)) / 200, 1460},
		{"a sandbox's status", len(n.status(n.pods[0].Sandbox.Id)), 1200},
		{"a container's status", len(n.status(n.pods[0].Containers[0].Id)), 2200},
		{"an event", len(event(n.pods[0], 0, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)), 5600},
	} {
		if c.bytes < c.want*9/10 || c.bytes > c.want*11/10 {
			t.Errorf("%s has %d bytes, documented are about %d", c.what, c.bytes, c.want)
		}
	}
}
