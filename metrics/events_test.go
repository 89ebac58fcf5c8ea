// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	kubemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/metrics"
)

// TestEveryMetricOfEventsIsServed yields each of the recorder's names, with a label where it has
// one.
func TestEveryMetricOfEventsIsServed(t *testing.T) {
	text, err := os.ReadFile("../events/stats.go") // another module
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(events?_\w+/?)"`).FindAllStringSubmatch(string(text), -1)
	if len(names) == 0 {
		t.Fatal("no names found in events/stats.go")
	}
	for _, match := range names {
		name := match[1]
		t.Run(name, func(t *testing.T) {
			labelled := strings.HasSuffix(name, "/")
			if labelled {
				name += "why"
			}
			reg := kubemetrics.NewKubeRegistry()
			if err := metrics.NewEvents(reg, func(yield func(string, float64)) { yield(name, 2); yield("nothing/else", 1) }); err != nil {
				t.Fatal(err)
			}
			served := gather(t, reg)
			for key, v := range served {
				if v != 2 || labelled != strings.HasSuffix(key, "{why}") {
					t.Errorf("%s is served as %s = %v", name, key, v)
				}
			}
			if len(served) != 1 {
				t.Errorf("%q of events shows in %d series, want 1", name, len(served))
			}
		})
	}
}

// TestGeneratorAndRecorderShareARegistry is how a node agent registers them.
func TestGeneratorAndRecorderShareARegistry(t *testing.T) {
	reg := kubemetrics.NewKubeRegistry()
	if _, err := metrics.New(reg, metrics.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := metrics.NewEvents(reg, nil); err != nil {
		t.Fatal(err)
	}
	if err := metrics.NewEvents(reg, nil); err == nil || !strings.Contains(err.Error(), "event_recorder_") {
		t.Errorf("a second set was accepted, or the error does not name a metric: %v", err)
	}
}
