// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
)

// Plain returns a [Registry] that registers in a plain Prometheus registry, for agents that have no
// Kubernetes one. It may be given to several calls of [New] and [NewEvents], with different names.
func Plain(registerer prometheus.Registerer) Registry {
	return plainRegistry{registerer: registerer, kube: metrics.NewKubeRegistry()}
}

// plainRegistry registers in two registries: Kubernetes' own creates a metric when it is
// registered. Nobody scrapes that one.
type plainRegistry struct {
	registerer prometheus.Registerer
	kube       metrics.KubeRegistry
}

func (r plainRegistry) Register(c metrics.Registerable) error {
	return r.mirror(c, r.kube.Register(c))
}

func (r plainRegistry) CustomRegister(c metrics.StableCollector) error {
	return r.mirror(c, r.kube.CustomRegister(c))
}

// mirror registers what Kubernetes' registry has taken, and takes it out of there if that fails.
func (r plainRegistry) mirror(c prometheus.Collector, err error) error {
	if err != nil {
		return err
	}
	if err := r.registerer.Register(c); err != nil {
		r.kube.Unregister(c)
		return err
	}
	return nil
}

func (r plainRegistry) Unregister(c metrics.Collector) bool {
	r.kube.Unregister(c)
	return r.registerer.Unregister(c)
}
