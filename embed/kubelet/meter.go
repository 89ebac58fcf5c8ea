// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"time"

	basemetrics "k8s.io/component-base/metrics"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// meter feeds the kubelet's metrics.
type meter struct {
	moved chan<- struct{} // see Generator
}

var _ pleg.Metrics = meter{}

// counter returns the kubelet's counter for one of the generator; nil if the kubelet has none.
func counter(name string) basemetrics.CounterMetric {
	missed := metrics.EventedPLEGMissedEvents.WithLabelValues
	switch name {
	case pleg.MetricRelistErrors:
		return metrics.PLEGRelistErrors
	case pleg.MetricInspectionErrors:
		return metrics.PLEGPodRelistErrors
	case pleg.MetricDiscardedEvents:
		return metrics.PLEGDiscardEvents
	case pleg.MetricConnects:
		return metrics.EventedPLEGConn
	case pleg.MetricConnectErrors:
		return metrics.EventedPLEGConnErr
	case pleg.MetricClaims:
		return metrics.EventedPLEGNotificationsReceived
	case pleg.MetricDiscardedClaims:
		return metrics.EventedPLEGNotificationsDiscarded
	case pleg.MetricOverruledClaims:
		return metrics.EventedPLEGNotificationsOverruled
	case pleg.MetricMissedStarts:
		return missed("started")
	case pleg.MetricMissedExits:
		return missed("exited")
	case pleg.MetricMissedCreations:
		return missed("created")
	case pleg.MetricMissedRemovals:
		return missed("removed")
	case pleg.MetricMissedUnknowns:
		return missed("unknown")
	case pleg.MetricUnheardChanges:
		return metrics.EventedPLEGUnheardChanges
	}
	return nil
}

func (m meter) Add(name string, n int) {
	if c := counter(name); c != nil {
		c.Add(float64(n))
	}
	switch name {
	case pleg.MetricEvents, pleg.MetricRelists, pleg.MetricConnects, pleg.MetricConnectErrors:
		nudge(m.moved)
	}
}

// nudge has the gauges set soon.
func nudge(moved chan<- struct{}) {
	select {
	case moved <- struct{}{}:
	default:
	}
}

func (m meter) Observe(name string, d time.Duration) {
	switch name {
	case pleg.MetricRelistDuration:
		metrics.PLEGRelistDuration.Observe(d.Seconds())
	case pleg.MetricRelistInterval:
		metrics.PLEGRelistInterval.Observe(d.Seconds())
	case pleg.MetricInspectionDuration:
		metrics.PLEGPodRelistDuration.Observe(d.Seconds())
	case pleg.MetricLatency:
		metrics.EventedPLEGConnLatency.Observe(d.Seconds())
	}
}

// streamStates are the label values of the stream's states.
var streamStates = map[pleg.StreamState]string{
	pleg.StreamIdle:        "idle",
	pleg.StreamOpening:     "opening",
	pleg.StreamConnected:   "connected",
	pleg.StreamBackoff:     "backoff",
	pleg.StreamUnsupported: "unsupported",
}

// gaugesDelay is how long changes are gathered before gauges show them.
const gaugesDelay = 100 * time.Millisecond

// showGauges keeps the kubelet's gauges right until ctx ends. The kubelet asks Healthy at every
// turn of its sync loop, which would set the gauges more often than anybody reads them.
func (g *Generator) showGauges(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.moved:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gaugesDelay):
		}
		g.publish()
	}
}

// publish sets the kubelet's gauges, which cannot be computed at a scrape.
func (g *Generator) publish() {
	s := g.core.Stats()
	if !s.LastRelist.IsZero() {
		metrics.PLEGLastSeen.Set(
			float64(time.Now().Add(-time.Since(s.LastRelist)).Unix()),
		) // by the present wall clock
	}
	for state, label := range streamStates {
		present := 0.0
		if state == s.State {
			present = 1
		}
		metrics.EventedPLEGStreamState.WithLabelValues(label).Set(present)
	}
	metrics.EventedPLEGRelistPeriod.Set(s.RelistPeriod.Seconds())
	metrics.EventedPLEGWaiters.Set(float64(s.Waiters))
	metrics.EventedPLEGUnreadPods.Set(float64(s.UnreadPods))
	metrics.EventedPLEGOwedPods.Set(float64(s.OwedPods))
	metrics.RunningPodCount.Set(float64(s.RunningPods))
	for p, state := range map[pleg.Phase]kubecontainer.State{
		pleg.PhaseCreated: kubecontainer.ContainerStateCreated, pleg.PhaseRunning: kubecontainer.ContainerStateRunning,
		pleg.PhaseExited: kubecontainer.ContainerStateExited, pleg.PhaseUnknown: kubecontainer.ContainerStateUnknown,
	} {
		if n := s.ContainersBy[p]; n > 0 ||
			g.shown[state] { // as in the stock PLEG, no series of a state never seen
			g.shown[state] = true
			metrics.RunningContainerCount.WithLabelValues(string(state)).Set(float64(n))
		}
	}
}
