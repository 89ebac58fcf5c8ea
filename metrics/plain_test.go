// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// An agent with a plain Prometheus registry. The set goes into pleg.Config.Metrics, and the
// generator's Gauges method into SetGauges.
func ExamplePlain() {
	registry := prometheus.NewRegistry()
	set, err := metrics.New(metrics.Plain(registry), metrics.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	set.SetGauges(func(yield func(name string, v float64)) { yield(pleg.GaugeRelistPeriod, 300) }) // generator.Gauges
	set.Add(pleg.MetricMissedEvents, 2)

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		switch f.GetName() {
		case "evented_pleg_relist_period_seconds":
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		case "kube_pod_missed_events":
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	// Output:
	// evented_pleg_relist_period_seconds 300
	// kube_pod_missed_events 2
}

// silent is a recorder's source of values that yields none.
func silent(func(string, float64)) {}

// TestPlainTakesOneSet registers nothing when a name is taken, and both kinds of sets beside each
// other.
func TestPlainTakesOneSet(t *testing.T) {
	registry := prometheus.NewRegistry()
	taken := prometheus.NewCounter(prometheus.CounterOpts{Name: "kube_pod_missed_events", Help: "somebody else's"})
	registry.MustRegister(taken)
	for range 2 { // a second failure is the same: nothing was left behind
		if _, err := metrics.New(metrics.Plain(registry), metrics.Options{}); err == nil || !strings.Contains(err.Error(), "kube_pod_missed_events") {
			t.Fatalf("%v: want the name that is taken", err)
		}
	}
	if families, err := registry.Gather(); err != nil || len(families) != 1 {
		t.Errorf("%d families (%v), want the other's alone", len(families), err)
	}
	registry = prometheus.NewRegistry()
	plain := metrics.Plain(registry)
	if _, err := metrics.New(plain, metrics.Options{}); err != nil {
		t.Error(err)
	}
	if err := metrics.NewEvents(plain, silent); err != nil {
		t.Error(err)
	}
	for _, again := range []metrics.Registry{plain, metrics.Plain(registry)} {
		if _, err := metrics.New(again, metrics.Options{}); err == nil {
			t.Error("a registry takes two sets")
		}
		if err := metrics.NewEvents(again, silent); err == nil || !strings.Contains(err.Error(), "event_recorder_") {
			t.Errorf("a registry takes two sets of a recorder, or the error does not name them: %v", err)
		}
	}
}

// TestNothingToRegisterIn: a nil registry, and metrics without values, are named where they are
// given, and not at the first scrape.
func TestNothingToRegisterIn(t *testing.T) {
	registry := prometheus.NewRegistry()
	var missing *prometheus.Registry
	for name, tc := range map[string]struct {
		make func() error
		want string
	}{
		"New in nil":               {func() error { _, err := metrics.New(nil, metrics.Options{}); return err }, "the registry is nil"},
		"New in a plain nil":       {func() error { _, err := metrics.New(metrics.Plain(nil), metrics.Options{}); return err }, "the registry is nil"},
		"New in a nil pointer":     {func() error { _, err := metrics.New(metrics.Plain(missing), metrics.Options{}); return err }, "the registry is nil"},
		"NewEvents in nil":         {func() error { return metrics.NewEvents(nil, silent) }, "the registry is nil"},
		"NewEvents in a plain nil": {func() error { return metrics.NewEvents(metrics.Plain(nil), silent) }, "the registry is nil"},
		"NewEvents without values": {func() error { return metrics.NewEvents(metrics.Plain(registry), nil) }, "values is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panics: %v", p)
				}
			}()
			if err := tc.make(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v does not say %q", err, tc.want)
			}
		})
	}
	if err := metrics.NewEvents(metrics.Plain(registry), silent); err != nil {
		t.Errorf("a refused set has left something: %v", err)
	}
}
