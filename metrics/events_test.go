// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/metrics"
)

func newEvents(t *testing.T) (*metrics.Events, kubemetrics.KubeRegistry) {
	t.Helper()
	reg := kubemetrics.NewKubeRegistry()
	e, err := metrics.NewEvents(reg)
	if err != nil {
		t.Fatal(err)
	}
	return e, reg
}

// TestEveryMetricOfEventsIsServed adds to each of the recorder's names, with a label where there is
// a dimension.
func TestEveryMetricOfEventsIsServed(t *testing.T) {
	for constant, name := range constants(t, "../events", "Metric") {
		t.Run(constant, func(t *testing.T) {
			e, reg := newEvents(t)
			before := gather(t, reg)
			labelled := strings.HasSuffix(name, "/")
			if labelled {
				name += "why"
			}
			e.Add(name, 2)
			after := gather(t, reg)
			found := 0
			for key, v := range after {
				if v == before[key] {
					continue
				}
				found++
				if v != 2 || labelled != strings.HasSuffix(key, "{why}") {
					t.Errorf("%s is served as %s = %v", name, key, v)
				}
			}
			if found != 1 {
				t.Errorf("events.%s = %q shows in %d series, want 1", constant, name, found)
			}
		})
	}
}

func TestEveryGaugeOfEventsIsServed(t *testing.T) {
	for constant, name := range constants(t, "../events", "Gauge") {
		t.Run(constant, func(t *testing.T) {
			e, reg := newEvents(t)
			before := gather(t, reg)
			e.SetGauges(func(yield func(string, float64)) { yield(name, 1) })
			if cmp.Equal(before, gather(t, reg)) {
				t.Errorf("events.%s = %q is not served", constant, name)
			}
		})
	}
}

func TestEventsIgnoreWhatTheyDoNotKnow(t *testing.T) {
	e, reg := newEvents(t)
	before := gather(t, reg)
	e.Add("nothing/else", 1)
	e.Add("nothing", 1)
	e.Add("events_dropped/why", 0)
	e.Add("events_dropped/why", -1)
	if diff := cmp.Diff(before, gather(t, reg)); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
}

// TestGeneratorAndRecorderShareARegistry is how a node agent registers them.
func TestGeneratorAndRecorderShareARegistry(t *testing.T) {
	reg := kubemetrics.NewKubeRegistry()
	if _, err := metrics.New(reg, metrics.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.NewEvents(reg); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.NewEvents(reg); err == nil || !strings.Contains(err.Error(), "event_recorder_") {
		t.Errorf("a second set was accepted, or the error does not name a metric: %v", err)
	}
}
