// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
)

// Plain returns a [Registry] that registers in a plain Prometheus registry, for agents without a
// Kubernetes registry. The result may be passed to several calls of [New] and [NewEvents] with
// different names. Plain of a nil registry is nil, which they refuse.
func Plain(registerer prometheus.Registerer) Registry {
	if v := reflect.ValueOf(registerer); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return plainRegistry{registerer: registerer, kube: metrics.NewKubeRegistry()}
}

// plainRegistry registers in two registries, because a Kubernetes metric exists only once a
// Kubernetes registry has registered the metric. Nobody scrapes the Kubernetes registry.
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

// mirror registers a metric that the Kubernetes registry has accepted, or on failure unregisters
// the metric there.
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
