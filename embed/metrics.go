// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"sync"

	compmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/evented-pleg/evented-pleg/metrics"
)

// registry is the kubelet's registry. Unregister has no effect, but a kubelet with clashing metrics
// does not start.
type registry struct{}

func (registry) Register(m compmetrics.Registerable) error { return legacyregistry.Register(m) }

func (registry) CustomRegister(c compmetrics.StableCollector) error {
	return legacyregistry.CustomRegister(c)
}

func (registry) Unregister(compmetrics.Collector) bool { return false }

// Metrics returns the set of metrics that a kubelet lacks, in the kubelet's registry. The registry
// is the process's, so generators of one process share the set; the gauges are those of the newest.
var Metrics = sync.OnceValues(func() (*metrics.Metrics, error) {
	return metrics.New(registry{}, metrics.Options{OmitKubelet: true})
})
