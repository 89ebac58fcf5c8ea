// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/evented-pleg/evented-pleg/embed/changes"
)

func TestHousekeepingRestsByAGate(t *testing.T) {
	s, _ := serving(t)
	if r := RestingHousekeeping(s); r != nil {
		t.Error("it rests by default")
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EventDrivenHousekeeping, true)
	if r := RestingHousekeeping(&listed{}); r != nil {
		t.Error("it rests although lists are not served from memory")
	}
}

func TestHousekeepingRestsWhileTheRuntimeStands(t *testing.T) {
	s, _ := serving(t)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EventDrivenHousekeeping, true)
	var workers changes.Map[string, int]
	r := RestingHousekeeping(s, &workers)
	now := time.Now()
	for _, step := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"the first", func() {}, true},
		{"nothing", func() {}, false},
		{"a pod worker", func() { workers.Set(map[string]int{"pod": 1}) }, true},
		{"nothing more", func() {}, false},
		{"the kubelet has stopped a container", func() { _ = s.StopContainer(t.Context(), "c", 1) }, true},
		{"nothing after it", func() {}, false},
		{"the stream is not trusted", func() { s.ServeLists(func() bool { return false }, time.Minute, nil) }, true},
		{"it still is not", func() {}, true},
	} {
		step.change()
		if got := r.Due(now); got != step.want {
			t.Errorf("%s: a round is made: %v, want %v", step.name, got, step.want)
		} else if got {
			r.Done()
		}
	}
}
