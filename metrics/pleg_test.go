// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/cache"
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

// everyPhase is a runtime with a pod of one container in each phase.
type everyPhase struct{}

func (everyPhase) List(context.Context, pleg.Revision) (pleg.Listing, error) {
	pod := pleg.Pod{UID: "pod"}
	for p := range pleg.PhaseRemoved {
		pod.Items = append(pod.Items, pleg.Item{ID: p.String(), Phase: p})
	}
	return pleg.Listing{Pods: []pleg.Pod{pod}, Total: 1}, nil
}

func (r everyPhase) ListPod(ctx context.Context, _ cache.UID) (pleg.Pod, error) {
	all, err := r.List(ctx, 0)
	return all.Pods[0], err
}

func (everyPhase) Inspect(_ context.Context, pod pleg.Pod) (pleg.Inspection[string], error) {
	return pleg.Inspection[string]{Status: new(string), Pod: pod}, nil
}

// TestEveryGaugeAndPhaseIsYielded runs a generator over everyPhase: it must yield each of pleg's
// gauges, and the metrics a container of each phase.
func TestEveryGaugeAndPhaseIsYielded(t *testing.T) {
	names := constants(t, "../pleg", "Gauge")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		generator := must(pleg.New(pleg.Config[string]{Source: everyPhase{}, Cache: cache.New[string](nil)}))(t)
		done := make(chan error)
		go func() { done <- generator.Run(ctx) }()
		synctest.Wait()
		yielded := make(map[string]float64)
		generator.Gauges(func(name string, v float64) { yielded[name] = v })
		for constant, name := range names {
			if _, ok := yielded[name]; !ok {
				t.Errorf("the generator does not yield pleg.%s = %q", constant, name)
			}
		}
		m, registry := newMetrics(t, metrics.Options{})
		m.SetGauges(generator.Gauges)
		served := 0.
		for _, family := range must(registry.Gather())(t) {
			if family.GetName() != "kubelet_running_containers" {
				continue
			}
			for _, metric := range family.Metric {
				served += metric.Gauge.GetValue()
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := float64(pleg.PhaseRemoved); served != want {
			t.Errorf("%v containers are served, want one in each of %v phases", served, want)
		}
	})
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
