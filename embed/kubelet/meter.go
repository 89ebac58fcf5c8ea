// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// meter feeds the metrics registered by the kubelet, and those that the kubelet lacks.
type meter struct {
	own   pleg.Metrics
	moved chan<- struct{} // see Generator
}

var _ pleg.Metrics = meter{}

func (m meter) Add(name string, n int) {
	switch name {
	case pleg.MetricDiscardedEvents:
		metrics.PLEGDiscardEvents.Add(float64(n))
	case pleg.MetricConnects:
		metrics.EventedPLEGConn.Add(float64(n))
	case pleg.MetricConnectErrors:
		metrics.EventedPLEGConnErr.Add(float64(n))
	}
	if name == pleg.MetricEvents || name == pleg.MetricRelists {
		select {
		case m.moved <- struct{}{}:
		default:
		}
	}
	m.own.Add(name, n)
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
	m.own.Observe(name, d)
}

// gaugesDelay is how long changes are gathered before gauges show them.
const gaugesDelay = 100 * time.Millisecond

// showGauges keeps the kubelet's gauges right until ctx ends, whether or not the kubelet asks
// Healthy.
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
	g.gauges.Lock()
	defer g.gauges.Unlock()
	s := g.core.Stats()
	if !s.LastRelist.IsZero() {
		metrics.PLEGLastSeen.Set(
			float64(time.Now().Add(-time.Since(s.LastRelist)).Unix()),
		) // by the present wall clock
	}
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
