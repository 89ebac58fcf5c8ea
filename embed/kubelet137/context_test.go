// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet137

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestGeneratorEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a goroutine left behind fails it
		n := newNode(t, newFakeEvents())
		n.runtime.show(pod("p", container("c", running)))
		ctx, cancel := context.WithCancel(t.Context())
		n.pleg.Start(ctx)
		n.expect("p c Started")
		if ok, err := n.pleg.Healthy(); !ok {
			t.Error(err)
		}
		cancel()
		atOnce()
		if ok, _ := n.pleg.Healthy(); ok {
			t.Error("healthy after its context has ended")
		}
	})
}
