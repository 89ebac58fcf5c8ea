// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	kubemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newMetrics returns a set in a registry of its own.
func newMetrics(t *testing.T, o metrics.Options) (*metrics.Metrics, kubemetrics.KubeRegistry) {
	t.Helper()
	reg := kubemetrics.NewKubeRegistry()
	m := must(metrics.New(reg, o))(t)
	m.SetGauges()
	return m, reg
}

// gather returns every series as name{label values}, histograms as their count and sum.
func gather(t *testing.T, reg kubemetrics.Gatherer) map[string]float64 {
	t.Helper()
	families := must(reg.Gather())(t)
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			key := f.GetName()
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				got[key] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				got[key] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				got[key+" count"] = float64(m.GetHistogram().GetSampleCount())
				got[key+" sum"] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return got
}

func TestOmitKubelet(t *testing.T) {
	all := func(yield func(string, float64)) {
		for _, name := range []string{"running_pods", "containers_running", "last_seen_seconds", "stream_state"} {
			yield(name, 1)
		}
	}
	m, reg := newMetrics(t, metrics.Options{OmitKubelet: true})
	m.SetGauges(all)
	m.Observe("latency", time.Millisecond)
	omitted := gather(t, reg)
	for key := range omitted {
		if strings.HasPrefix(key, "kubelet_") {
			t.Errorf("%s is served although the kubelet's names are left out", key)
		}
	}
	if omitted["evented_pleg_connection_latency_seconds count"] != 1 {
		t.Error("the latency was observed in vain: evented_pleg_connection_latency_seconds is missing")
	}
	full, fullReg := newMetrics(t, metrics.Options{})
	full.SetGauges(all)
	if want := gather(t, fullReg); len(want) != len(omitted) {
		t.Errorf("%d series without the kubelet's names, %d with them: a twin is missing", len(omitted), len(want))
	}
	// A kubelet's own registry: its names beside ours.
	if _, err := metrics.New(fullReg, metrics.Options{OmitKubelet: true}); err == nil {
		t.Error("a second set in one registry was accepted")
	}
}

func TestNewRefusesTakenNames(t *testing.T) {
	reg := kubemetrics.NewKubeRegistry()
	// Late in the order, so that much is registered before the failure.
	reg.MustRegister(kubemetrics.NewGauge(&kubemetrics.GaugeOpts{Name: "kubelet_running_pods", Help: "The kubelet's own."}))
	_, err := metrics.New(reg, metrics.Options{})
	if err == nil || !strings.Contains(err.Error(), "OmitKubelet") {
		t.Fatalf("err = %v, want one that says what to do", err)
	}
	if got := slices.Collect(maps.Keys(gather(t, reg))); !cmp.Equal(got, []string{"kubelet_running_pods"}) {
		t.Errorf("after a failure the registry holds %v, want only what it held", got)
	}
	if _, err := metrics.New(reg, metrics.Options{OmitKubelet: true}); err != nil {
		t.Errorf("without the kubelet's names: %v", err)
	}
}

func TestAddAndObserve(t *testing.T) {
	m, reg := newMetrics(t, metrics.Options{})
	before := gather(t, reg)
	m.Add("nobody_knows", 1)
	m.Observe("nobody_knows", time.Second)
	m.Observe("inspection_duration", -time.Hour) // a clock that went back
	m.Add("latency", 1)                          // a histogram
	m.Observe("claims", time.Second)             // a counter
	m.Add("claims", 0)
	m.Add("claims", -1)
	if diff := cmp.Diff(before, gather(t, reg)); diff != "" {
		t.Errorf("reports that are to be ignored changed something (-before +after):\n%s", diff)
	}
	m.Add("claims", 41)
	m.Add("claims", 1)
	m.Observe("latency", 1500*time.Millisecond)
	got := gather(t, reg)
	if got["kubelet_evented_pleg_notifications_received"] != 42 {
		t.Errorf("notifications received: %v, want 42", got["kubelet_evented_pleg_notifications_received"])
	}
	if got["kubelet_evented_pleg_connection_latency_seconds sum"] != 1.5 {
		t.Errorf("latency: %v s, want 1.5", got["kubelet_evented_pleg_connection_latency_seconds sum"])
	}
}

func TestGauges(t *testing.T) {
	m, reg := newMetrics(t, metrics.Options{})
	bare := gather(t, reg)
	var mu sync.Mutex
	yields := map[string]float64{"stream_state": 2, "relist_period_seconds": 64, "running_pods": 7, "containers_running": 14, "containers_exited": 1, "unheard_of": 9}
	m.SetGauges(func(yield func(string, float64)) {
		mu.Lock()
		defer mu.Unlock()
		for name, v := range yields {
			yield(name, v)
		}
	})
	got := gather(t, reg)
	maps.DeleteFunc(got, func(k string, _ float64) bool { _, ok := bare[k]; return ok })
	want := map[string]float64{
		"evented_pleg_stream_state{Idle}":        0,
		"evented_pleg_stream_state{Opening}":     0,
		"evented_pleg_stream_state{Connected}":   1,
		"evented_pleg_stream_state{Backoff}":     0,
		"evented_pleg_stream_state{Unsupported}": 0,
		"evented_pleg_relist_period_seconds":     64,
		"kubelet_running_pods":                   7,
		"kubelet_running_containers{running}":    14,
		"kubelet_running_containers{exited}":     1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gauges (-want +got):\n%s", diff)
	}
	// The source is asked at each scrape, and values without a source are gone.
	mu.Lock()
	yields = map[string]float64{"running_pods": 8}
	mu.Unlock()
	if got := gather(t, reg); got["kubelet_running_pods"] != 8 || len(got) != len(bare)+1 {
		t.Errorf("second scrape does not show what the source yields now: %v", got)
	}
	m.SetGauges(nil)
	if diff := cmp.Diff(bare, gather(t, reg)); diff != "" {
		t.Errorf("gauges are served without a source (-want +got):\n%s", diff)
	}
}

// TestNamesFromOutside: what a source yields may hold what the runtime says, of any length and with
// any bytes. A scrape serves such values, and the process lives.
func TestNamesFromOutside(t *testing.T) {
	for yielded, want := range map[string]string{
		"runtime/containerd/v2.1": "{containerd,v2.1}",
		"runtime/cri-o/v1/dirty":  "{cri-o,v1/dirty}",
		"runtime/cut short":       "{cut short,}",
		"runtime/":                "{,}",
		"runtime/a\xff/b\xfe":     "{a\uFFFD,b\uFFFD}",
	} {
		m, reg := newMetrics(t, metrics.Options{})
		m.SetGauges(func(yield func(string, float64)) { yield(yielded, 1) })
		if got := gather(t, reg); got["evented_pleg_runtime_info"+want] != 1 {
			t.Errorf("%q: %v, want %s", yielded, got, want)
		}
	}
}

// TestNamesFromOutsideThatBecomeOne: of names that differ in nothing that labels can hold, one is
// served, always the same, and the scrape does not fail.
func TestNamesFromOutsideThatBecomeOne(t *testing.T) {
	for _, yielded := range [][]string{
		{"runtime/a/v1\xfe", "runtime/a/v1\xff"},
		{"runtime/a", "runtime/a/"},
	} {
		for range 10 { // in the order of a map
			m, reg := newMetrics(t, metrics.Options{})
			m.SetGauges(func(yield func(string, float64)) {
				for i, name := range yielded {
					yield(name, float64(i+1))
				}
			})
			served := 0.0
			for name, v := range gather(t, reg) {
				if strings.HasPrefix(name, "evented_pleg_runtime_info") {
					served += v
				}
			}
			if served != 1 {
				t.Fatalf("of %q the sum %v is served, want the first alone", yielded, served)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	m, reg := newMetrics(t, metrics.Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				m.Add("claims", 1)
				m.Observe("latency", time.Millisecond)
			}
		})
		wg.Go(func() {
			for range 20 {
				m.SetGauges(func(yield func(string, float64)) { yield("waiters", 1) })
				if _, err := reg.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := gather(t, reg)["kubelet_evented_pleg_notifications_received"]; got != 2000 {
		t.Errorf("%v claims counted, want 2000", got)
	}
}

// TestLint runs the Prometheus linter, inside the Kubernetes linter, for names and help of
// everything served.
func TestLint(t *testing.T) {
	for _, omit := range []bool{false, true} {
		m, reg := newMetrics(t, metrics.Options{OmitKubelet: omit})
		m.SetGauges(func(yield func(string, float64)) { yield("waiters", 1) })
		families := must(reg.Gather())(t)
		if len(families) == 0 {
			t.Fatal("nothing is served")
		}
		problems := must(promlint.NewWithMetricFamilies(families).Lint())(t)
		for _, p := range problems {
			// These names are given: by the kubelet (and its twins), or by KEP-3386.
			given := strings.Contains(p.Metric, "connection_") || strings.HasSuffix(p.Metric, "notifications_received") ||
				strings.HasSuffix(p.Metric, "discard_events") || p.Metric == "kube_pod_missed_events"
			if !given {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
}

// TestForgottenGauges: a scrape of a set that a generator uses fails until the set has sources,
// even none.
func TestForgottenGauges(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := must(metrics.New(metrics.Plain(registry), metrics.Options{}))(t)
	if _, err := registry.Gather(); err != nil {
		t.Errorf("a set that nobody uses: %v", err)
	}
	m.Observe(pleg.MetricRelistDuration, time.Second)
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "SetGauges was never called") {
		t.Errorf("without the gauges a scrape says %v", err)
	}
	m.SetGauges()
	if _, err := registry.Gather(); err != nil {
		t.Errorf("after SetGauges: %v", err)
	}
}
