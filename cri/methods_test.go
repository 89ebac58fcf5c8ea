// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestEveryMethodIsOfTheCRI wants the name and the path of each method, both of the same method of
// the CRI. The streaming lists are missing in the CRI's oldest module that is served.
func TestEveryMethodIsOfTheCRI(t *testing.T) {
	known := []string{"StreamPodSandboxes", "StreamContainers"}
	for _, m := range runtimeapi.RuntimeService_ServiceDesc.Methods {
		known = append(known, m.MethodName)
	}
	for _, m := range runtimeapi.RuntimeService_ServiceDesc.Streams {
		known = append(known, m.StreamName)
	}
	for m := range methods {
		if !slices.Contains(known, m.String()) {
			t.Errorf("method %d of call.go is called %q, and the CRI has no such call", m, m)
		}
		if methodPaths[m] != service+m.String() {
			t.Errorf("%s of call.go has the path %q", m, methodPaths[m])
		}
	}
}
