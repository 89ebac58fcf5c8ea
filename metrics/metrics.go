// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/component-base/metrics"
)

// Registry is the part of a [metrics.KubeRegistry] used by [New]. [Plain] adapts a Prometheus
// registry.
type Registry interface {
	Register(metrics.Registerable) error
	CustomRegister(metrics.StableCollector) error
	Unregister(metrics.Collector) bool
}

// Options select the metrics that [New] registers. The zero value registers all.
type Options struct {
	// OmitKubelet leaves out the names that a kubelet registers itself, for a program whose registry
	// has a kubelet's. Their values are served under the prefix evented_pleg_.
	OmitKubelet bool
}

// Metrics is a generator's set of metrics in a registry, made by [New].
type Metrics struct {
	set
}

// New makes and registers a set of metrics for a generator. If a name is taken, nothing is
// registered and the error contains the name: either the registry already has a set, or the
// registry is a kubelet's own and OmitKubelet is needed. A nil registry is an error, too.
func New(registry Registry, options Options) (*Metrics, error) {
	if registry == nil {
		return nil, errNoRegistry
	}
	m := new(Metrics)
	err := m.register(registry, options)
	if err != nil {
		const remedy = "a registry takes one set; beside a kubelet's metrics set OmitKubelet"
		return nil, fmt.Errorf("metrics: %w (%s)", err, remedy)
	}
	return m, nil
}

var errNoRegistry = errors.New("metrics: the registry is nil: give a Kubernetes registry, or Plain of a Prometheus registry")

// set holds counters and histograms by their reporter's names, which do not change after register.
type set struct {
	gaugeSource
	counters   map[string]*metrics.Counter
	histograms map[string]*metrics.Histogram
}

// register registers all metrics of a generator, or nothing.
func (s *set) register(registry Registry, options Options) error {
	s.counters = make(map[string]*metrics.Counter)
	s.histograms = make(map[string]*metrics.Histogram)
	var done []metrics.Collector
	fail := func(name string, err error) error {
		for _, c := range done {
			registry.Unregister(c)
		}
		return fmt.Errorf("register %s: %w", name, err)
	}
	for _, d := range pushed {
		name := d.registeredName(options.OmitKubelet)
		count := metrics.CounterOpts{Name: name, Help: d.help, StabilityLevel: stability}
		var c interface {
			metrics.Registerable
			metrics.Collector
		}
		switch {
		case d.kind == histogram:
			s.histograms[d.source] = metrics.NewHistogram(&metrics.HistogramOpts{
				Name:           name,
				Help:           d.help,
				Buckets:        d.buckets,
				StabilityLevel: stability,
			})
			c = s.histograms[d.source]
		default:
			s.counters[d.source] = metrics.NewCounter(&count)
			c = s.counters[d.source]
		}
		if err := registry.Register(c); err != nil {
			return fail(name, err)
		}
		done = append(done, c)
	}
	pulled := newCollector(&s.gaugeSource, slices.Concat(gauges, clientCounters), options)
	err := registry.CustomRegister(pulled)
	if err != nil {
		return fail("the gauges", err)
	}
	return nil
}

// Add adds n to the counter with the reporter's name. Unknown names and n below zero are ignored.
func (s *set) Add(name string, n int) {
	if n <= 0 {
		return
	}
	s.use()
	if c, ok := s.counters[name]; ok {
		c.Add(float64(n))
	}
}

// Observe adds a duration to the histogram with the reporter's name. Unknown names and durations
// below zero, which would take the sum back, are ignored.
func (s *set) Observe(name string, d time.Duration) {
	if d < 0 {
		return
	}
	s.use()
	if h, ok := s.histograms[name]; ok {
		h.Observe(d.Seconds())
	}
}

// use notes that something was reported.
func (s *set) use() {
	if !s.used.Load() {
		s.used.Store(true)
	}
}
