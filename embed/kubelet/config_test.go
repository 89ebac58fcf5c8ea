// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"strings"
	"testing"
	"testing/synctest"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

func TestGateDecidesTheCache(t *testing.T) {
	if Enabled() {
		t.Fatal("the gate is on by default")
	}
	featuregatetesting.SetFeatureGateDuringTest(
		t,
		utilfeature.DefaultFeatureGate,
		features.EventDrivenPLEG,
		true,
	)
	if c, _ := Wrap(kubecontainer.NewCache(), nil); c.(*Cache) == nil {
		t.Errorf("gate on: the cache is a %T", c)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	_, err := New(Config{Cache: kubecontainer.NewCache()})
	if err == nil {
		t.Fatal("an empty configuration was accepted")
	}
	for _, name := range []string{"Runtime", "Events", "Cache", "Removable", "Recorder", "Node"} {
		if !strings.Contains(err.Error(), "Config."+name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EventedPLEG, true)
	if _, err := New(Config{}); !strings.Contains(err.Error(), "EventedPLEG") {
		t.Errorf("%q does not name the gate that must be off", err)
	}
}

func TestStartAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a leftover goroutine fails it
		n := newNode(t, newFakeEvents())
		n.pleg.Stop()
		n.runtime.show(pod("p", container("c", running)))
		start(n.pleg)
		n.started().expect("p c Started")
		if s := n.pleg.core.Stats(); s.Relists != 1 {
			t.Errorf("%d relists after two calls of Start, want 1", s.Relists)
		}
		n.runtime.show()
		relist(n.pleg, "p")
		atOnce() // the pump now holds an event without a taker
		n.pleg.Stop()
		n.pleg.Stop()
		select {
		case e, open := <-n.pleg.Watch():
			t.Errorf("Watch gave %v, open: %v; want nothing, and not closed", e, open)
		default:
		}
		if ok, _ := n.pleg.Healthy(); ok {
			t.Error("healthy after Stop")
		}
	})
}
