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
	if err := metrics.NewEvents(plain, nil); err != nil {
		t.Error(err)
	}
	for _, again := range []metrics.Registry{plain, metrics.Plain(registry)} {
		if _, err := metrics.New(again, metrics.Options{}); err == nil {
			t.Error("a registry takes two sets")
		}
		if err := metrics.NewEvents(again, nil); err == nil || !strings.Contains(err.Error(), "event_recorder_") {
			t.Errorf("a registry takes two sets of a recorder, or the error does not name them: %v", err)
		}
	}
}
