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
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	constant := regexp.MustCompile(`(?m)^\s+(` + prefix + `\w+)\s*=\s*"(.*)"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
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

// TestEveryCountOfTheClientIsServed yields each of the client's names, with a method where there is
// a dimension.
func TestEveryCountOfTheClientIsServed(t *testing.T) {
	client, err := cri.New(cri.Config{Endpoint: "unix:///absent"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	names := []string{"client_calls/"} // of a client that has made no call
	client.Counts(func(name string, _ float64) { names = append(names, name) })
	for _, name := range names {
		t.Run(strings.TrimSuffix(name, "/"), func(t *testing.T) {
			m, reg := newMetrics(t, metrics.Options{})
			before := gather(t, reg)
			labelled := strings.HasSuffix(name, "/")
			if labelled {
				name += "Version"
			}
			m.SetGauges(nil, func(yield func(string, float64)) { yield(name, 7) })
			after := gather(t, reg)
			found := 0
			for key, v := range after {
				if _, ok := before[key]; ok {
					continue
				}
				found++
				if v != 7 || labelled != strings.HasSuffix(key, "{Version}") {
					t.Errorf("%s is served as %s = %v", name, key, v)
				}
			}
			if found != 1 {
				t.Errorf("%q of cri.Client.Counts shows in %d series, want 1", name, found)
			}
		})
	}
}
