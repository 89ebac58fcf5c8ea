// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet137

import (
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// meter feeds the metrics that the kubelet has registered, and those that it does not have.
type meter struct{ own pleg.Metrics }

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

// publish sets the kubelet's gauges, which cannot be computed at a scrape.
func publish(s pleg.Stats, healthy bool) {
	if healthy {
		metrics.PLEGLastSeen.Set(float64(time.Now().Unix()))
	}
	metrics.RunningPodCount.Set(float64(s.RunningPods))
	for p, state := range map[pleg.Phase]kubecontainer.State{
		pleg.PhaseCreated: kubecontainer.ContainerStateCreated, pleg.PhaseRunning: kubecontainer.ContainerStateRunning,
		pleg.PhaseExited: kubecontainer.ContainerStateExited, pleg.PhaseUnknown: kubecontainer.ContainerStateUnknown,
	} {
		metrics.RunningContainerCount.WithLabelValues(string(state)).Set(float64(s.ContainersBy[p]))
	}
}
