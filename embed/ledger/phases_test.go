// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
)

// TestEveryStateIsServed wants each state of a container, once read, in the lists that the ledger
// serves: containerState is the inverse of criphase.
func TestEveryStateIsServed(t *testing.T) {
	for n, name := range runtimeapi.ContainerState_name {
		state := runtimeapi.ContainerState(n)
		if got := containerState(criphase.OfContainer(state)); got != state {
			t.Errorf("%s is served as %v: give containerState a case", name, got)
		}
	}
}
