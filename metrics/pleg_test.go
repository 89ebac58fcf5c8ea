// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

var _ pleg.Metrics = (*metrics.Metrics)(nil)

// constants returns every string constant of a package with the given name prefix.
func constants(t *testing.T, dir, prefix string) map[string]string {
	t.Helper()
	files := must(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	found := make(map[string]string)
	constant := regexp.MustCompile(`(?m)^\s+(` + prefix + `\w+)\s*=\s*"(.*)"`)
	for _, file := range files {
		text := must(os.ReadFile(file))(t)
		for _, match := range constant.FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = match[2]
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no constants named %s…", dir, prefix)
	}
	return found
}

// TestEveryMetricOfPLEGIsServed reports each of pleg's names as a counter and as a histogram:
// exactly a single kind must show.
func TestEveryMetricOfPLEGIsServed(t *testing.T) {
	for constant, name := range constants(t, "../pleg", "Metric") {
		t.Run(constant, func(t *testing.T) {
			m, reg := newMetrics(t, metrics.Options{})
			before := gather(t, reg)
			m.Add(name, 1)
			counted := gather(t, reg)
			m.Observe(name, time.Second)
			observed := gather(t, reg)
			asCounter, asHistogram := !cmp.Equal(before, counted), !cmp.Equal(counted, observed)
			if asCounter == asHistogram {
				t.Errorf("pleg.%s = %q is served as a counter: %t, as a histogram: %t; want one of them", constant, name, asCounter, asHistogram)
			}
		})
	}
}

func TestEveryGaugeOfPLEGIsServed(t *testing.T) {
	for constant, name := range constants(t, "../pleg", "Gauge") {
		t.Run(constant, func(t *testing.T) {
			m, reg := newMetrics(t, metrics.Options{})
			before := gather(t, reg)
			m.SetGauges(func(yield func(string, float64)) { yield(name, 1) })
			if cmp.Equal(before, gather(t, reg)) {
				t.Errorf("pleg.%s = %q is not served", constant, name)
			}
		})
	}
}

// TestEveryPulledNameIsServed yields each name of the CRI client and of the recorder of Events,
// with a label's value where the name ends in a slash: a single series must show.
func TestEveryPulledNameIsServed(t *testing.T) {
	client := must(cri.New(cri.Config{Endpoint: "unix:///absent"}))(t)
	defer client.Close()
	ofClient := []string{"client_calls/"} // of a client that has made no call
	client.Counts(func(name string, _ float64) { ofClient = append(ofClient, name) })
	text := must(os.ReadFile("../events/stats.go"))(t) // another module
	ofEvents := regexp.MustCompile(`"(events?_\w+/?)"`).FindAllString(string(text), -1)
	if len(ofEvents) == 0 {
		t.Fatal("no names found in events/stats.go")
	}
	for _, name := range append(ofClient, ofEvents...) {
		name = strings.Trim(name, `"`)
		t.Run(strings.TrimSuffix(name, "/"), func(t *testing.T) {
			labelled := strings.HasSuffix(name, "/")
			if labelled {
				name += "why"
			}
			values := func(yield func(string, float64)) { yield(name, 7); yield("nothing/else", 1) }
			m, reg := newMetrics(t, metrics.Options{})
			m.SetGauges(nil, values)
			check(t, metrics.NewEvents(reg, values))
			found := 0
			for key, v := range gather(t, reg) {
				if v == 0 { // a counter of the generator
					continue
				}
				if found++; v != 7 || labelled != strings.HasSuffix(key, "{why}") {
					t.Errorf("%s is served as %s = %v", name, key, v)
				}
			}
			if found != 1 {
				t.Errorf("%q shows in %d series, want 1", name, found)
			}
		})
	}
}
