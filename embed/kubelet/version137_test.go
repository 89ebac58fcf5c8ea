// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore && kubernetes1.37

package evented

import (
	"context"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

func start(g *Generator) { g.Start(context.Background()) }

func relist(g *Generator, uid types.UID) { g.RequestRelist(klog.Background(), uid) }

func TestRequestRelistFindsAChangeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connected(t)
		n.runtime.show(pod("p", container("c", exited)))
		n.pleg.RequestRelist(klog.Background(), "")
		n.expect()
		n.pleg.RequestRelist(klog.Background(), "p")
		n.expect("p c Died")
	})
}

func TestGeneratorEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a leftover goroutine fails it
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
