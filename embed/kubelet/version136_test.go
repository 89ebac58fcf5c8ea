// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore && kubernetes1.36

package evented

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

func start(g *Generator) { g.Start() }

func relist(g *Generator, uid types.UID) { g.RequestRelist(uid) }

func TestRequestRelistFindsAChangeAtOnce(t *testing.T) {
	for _, on := range []bool{true, false} {
		featuregatetesting.SetFeatureGateDuringTest(
			t,
			utilfeature.DefaultFeatureGate,
			features.PLEGOnDemandRelist,
			on,
		)
		synctest.Test(t, func(t *testing.T) {
			n := connected(t)
			n.runtime.show(pod("p", container("c", exited)))
			n.pleg.RequestRelist("p")
			n.pleg.RequestRelist("")
			if on {
				n.expect("p c Died")
			} else {
				n.expect()
			}
		})
	}
}
