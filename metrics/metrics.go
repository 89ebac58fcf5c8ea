// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"
)

// Registry is the part of a [metrics.KubeRegistry] that [New] uses.
type Registry interface {
	Register(metrics.Registerable) error
	CustomRegister(metrics.StableCollector) error
	Unregister(metrics.Collector) bool
}

// Options say what [New] registers. The zero value registers all.
type Options struct {
	// OmitKubelet leaves out the names that a kubelet registers itself, for a generator that runs inside one. What they would have shown
	// is served under the prefix evented_pleg_.
	OmitKubelet bool
}

// Metrics is one generator's set of metrics in one registry. Make it with [New].
type Metrics struct {
	// counters and histograms are keyed by the generator's names and never change after New.
	counters   map[string]*metrics.Counter
	histograms map[string]*metrics.Histogram
	gauges     atomic.Pointer[func(yield func(string, float64))]
}

// New makes a set of metrics and registers it. If one of the names is taken, it registers none and returns an error that names it:
// either the registry has a set already, or it is a kubelet's own, which wants OmitKubelet.
func New(registry Registry, options Options) (*Metrics, error) {
	m := &Metrics{counters: make(map[string]*metrics.Counter), histograms: make(map[string]*metrics.Histogram)}
	var done []metrics.Collector
	fail := func(name string, err error) (*Metrics, error) {
		for _, c := range done {
			registry.Unregister(c)
		}
		return nil, fmt.Errorf("metrics: register %s: %w (a registry takes one set; inside a kubelet set OmitKubelet)", name, err)
	}
	for _, d := range reported {
		name := d.served(options.OmitKubelet)
		var c interface {
			metrics.Registerable
			metrics.Collector
		}
		switch d.kind {
		case counter:
			m.counters[d.source] = metrics.NewCounter(&metrics.CounterOpts{Name: name, Help: d.help, StabilityLevel: stability})
			c = m.counters[d.source]
		case histogram:
			m.histograms[d.source] = metrics.NewHistogram(&metrics.HistogramOpts{Name: name, Help: d.help, Buckets: d.buckets, StabilityLevel: stability})
			c = m.histograms[d.source]
		}
		if err := registry.Register(c); err != nil {
			return fail(name, err)
		}
		done = append(done, c)
	}
	if err := registry.CustomRegister(newCollector(m, options.OmitKubelet)); err != nil {
		return fail("the gauges", err)
	}
	return m, nil
}

// Add adds n to the counter that the generator calls name. Names that are not known and n below zero are ignored.
func (m *Metrics) Add(name string, n int) {
	if c, ok := m.counters[name]; ok && n > 0 {
		c.Add(float64(n))
	}
}

// Observe adds a duration to the histogram that the generator calls name. Names that are not known are ignored.
func (m *Metrics) Observe(name string, d time.Duration) {
	if h, ok := m.histograms[name]; ok {
		h.Observe(d.Seconds())
	}
}

// SetGauges gives the source that scrapes read the gauges from, such as a generator's Gauges method. It replaces the source before; nil
// takes it away, and the gauges with it. The source must be safe for concurrent use and must not block.
func (m *Metrics) SetGauges(source func(yield func(name string, v float64))) {
	if source == nil {
		m.gauges.Store(nil)
		return
	}
	m.gauges.Store(&source)
}
