// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestEveryMetricIsTheKubelets checks that what the generator counts is served under the kubelet's
// subsystem, once, and that nothing of it is served elsewhere.
func TestEveryMetricIsTheKubelets(t *testing.T) {
	registered(t)
	m := meter{moved: make(chan struct{}, 1)}
	for _, name := range []string{
		pleg.MetricRelistErrors, pleg.MetricInspectionErrors, pleg.MetricDiscardedEvents, pleg.MetricConnects,
		pleg.MetricConnectErrors, pleg.MetricClaims, pleg.MetricDiscardedClaims, pleg.MetricOverruledClaims,
		pleg.MetricMissedStarts, pleg.MetricMissedExits, pleg.MetricMissedCreations, pleg.MetricMissedRemovals,
		pleg.MetricMissedUnknowns, pleg.MetricUnheardChanges,
	} {
		before := sum(t)
		m.Add(name, 3)
		if got := sum(t) - before; got != 3 {
			t.Errorf("%s: all counters of the PLEG rose by %v, want 3", name, got)
		}
	}
	before := sum(t)
	m.Add("of a later core", 3)
	if got := sum(t) - before; got != 0 {
		t.Errorf("an unknown name is counted %v times", got)
	}
}

// sum returns the sum of the kubelet's counters of the PLEG, and fails for a family of the PLEG
// outside the kubelet's subsystem or of another stability than ALPHA.
func sum(t *testing.T) (total float64) {
	t.Helper()
	families, err := metrics.GetGather().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.Contains(f.GetName(), "pleg") && !strings.Contains(f.GetName(), "missed") {
			continue
		}
		if !strings.HasPrefix(f.GetName(), metrics.KubeletSubsystem+"_") {
			t.Errorf("%s is outside the subsystem", f.GetName())
		}
		if !strings.HasPrefix(f.GetHelp(), "[ALPHA] ") {
			t.Errorf("%s is not ALPHA: %s", f.GetName(), f.GetHelp())
		}
		for _, series := range f.GetMetric() {
			total += series.GetCounter().GetValue()
		}
	}
	return total
}

var errStream = errors.New("the stream is lost")

// TestGaugesOfTheStream checks the state of the stream and the relist period that it earns.
func TestGaugesOfTheStream(t *testing.T) {
	registered(t)
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newFakeEvents())
		want := func(connected, backoff, period string) {
			t.Helper()
			time.Sleep(2 * gaugesDelay)
			synctest.Wait()
			text := `
# HELP kubelet_evented_pleg_relist_period_seconds [ALPHA] Present time in seconds between relists, which complete container events lengthen.
# TYPE kubelet_evented_pleg_relist_period_seconds gauge
kubelet_evented_pleg_relist_period_seconds ` + period + `
# HELP kubelet_evented_pleg_stream_state [ALPHA] 1 for the present state of the stream of container events, 0 for the others. Label 'state' is idle, opening, connected, backoff, or unsupported.
# TYPE kubelet_evented_pleg_stream_state gauge
kubelet_evented_pleg_stream_state{state="backoff"} ` + backoff + `
kubelet_evented_pleg_stream_state{state="connected"} ` + connected + `
kubelet_evented_pleg_stream_state{state="idle"} 0
kubelet_evented_pleg_stream_state{state="opening"} 0
kubelet_evented_pleg_stream_state{state="unsupported"} 0
`
			if err := testutil.GatherAndCompare(
				metrics.GetGather(),
				strings.NewReader(text),
				"kubelet_evented_pleg_stream_state",
				"kubelet_evented_pleg_relist_period_seconds",
			); err != nil {
				t.Error(err)
			}
		}
		n.started()
		n.events.feed <- &runtimeapi.ContainerEventResponse{ContainerId: "c"}
		time.Sleep(2 * time.Minute)
		want("1", "0", "45")
		n.events.with(errStream)
		n.events.cut <- errStream
		want("0", "1", "1")
	})
}

// TestHealthyHasGaugesSetLater checks that the kubelet's sync loop, which asks Healthy at every
// turn, does not set gauges each time, and that its question has them set.
func TestHealthyHasGaugesSetLater(t *testing.T) {
	registered(t)
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.started()
		time.Sleep(2 * gaugesDelay)
		synctest.Wait()
		want := func(waiters float64) {
			t.Helper()
			got, err := testutil.GetGaugeMetricValue(metrics.EventedPLEGWaiters)
			if err != nil || got != waiters {
				t.Errorf("%v waiters are shown, %v; want %v", got, err, waiters)
			}
		}
		metrics.EventedPLEGWaiters.Set(7) // as of before
		if ok, err := n.pleg.Healthy(); !ok {
			t.Error(err)
		}
		want(7)
		time.Sleep(gaugesDelay)
		synctest.Wait()
		want(0)
	})
}
