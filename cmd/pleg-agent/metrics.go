// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	clientevents "k8s.io/client-go/tools/events"

	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// meter holds the agent's own metrics. Safe for concurrent use.
type meter struct {
	ends       *prometheus.CounterVec
	unreported *prometheus.CounterVec
	restarts   *prometheus.CounterVec
	handed     prometheus.Histogram
	stored     prometheus.Histogram

	mu         sync.Mutex      // owns namespaces
	namespaces map[string]bool // with a label of their own
}

// maxNamespaces bounds the values of the label namespace; beyond, namespaces are counted together
// as otherNamespaces. The namespace infrastructure always has its own.
const (
	maxNamespaces   = 200
	infrastructure  = "kube-system"
	otherNamespaces = "(other)"
)

// latencies are the upper bounds of the histograms, in seconds.
var latencies = []float64{0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60, 300, 3600}

func newMeter(registry prometheus.Registerer) (*meter, error) {
	m := &meter{
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pleg_agent_ends_total",
			Help: "Number of ends of containers, and of sandboxes under them, by kind and namespace.",
		}, []string{"kind", "namespace"}),
		unreported: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pleg_agent_ends_unreported_total",
			Help: "Number of ends without an own Event: combined by a rate, not chosen, or nameless.",
		}, []string{"outcome"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pleg_agent_container_restarts_total",
			Help: "Number of containers made after others of their name and pod, by namespace.",
		}, []string{"namespace"}),
		handed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "pleg_agent_end_to_report_seconds",
			Help:    "Time in seconds from the end of a container to its report, its reason settled.",
			Buckets: latencies,
		}),
		stored: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "pleg_agent_end_to_event_seconds",
			Help:    "Time in seconds from the end of a container to its Event at the API server.",
			Buckets: latencies,
		}),
		namespaces: map[string]bool{infrastructure: true},
	}
	for _, c := range []prometheus.Collector{m.ends, m.unreported, m.restarts, m.handed, m.stored} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	m.begin()
	return m, nil
}

// begin makes the series whose labels are known, at 0: so the first end of each is an increase.
func (m *meter) begin() {
	for _, kind := range exits.Kinds() {
		m.ends.WithLabelValues(kind.Short(), infrastructure)
	}
	for _, outcome := range []exits.Outcome{exits.Combined, exits.NotChosen, exits.Unnamed} {
		m.unreported.WithLabelValues(string(outcome))
	}
	m.restarts.WithLabelValues(infrastructure)
}

// longestNamespace is the length of a namespace's name at most, in bytes.
const longestNamespace = 63

// label returns the value of the label namespace. The name comes from the runtime: label escapes
// control characters and bounds the length and the number of names, to protect readers of /metrics.
func (m *meter) label(namespace string) string {
	namespace = printable.Cut(namespace, longestNamespace)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.namespaces[namespace]:
	case len(m.namespaces) < maxNamespaces-1:
		m.namespaces[namespace] = true
	default:
		return otherNamespaces
	}
	return namespace
}

func (m *meter) observe(e exits.End, outcome exits.Outcome) {
	m.ends.WithLabelValues(e.Kind.Short(), m.label(e.Pod.Namespace)).Inc()
	if outcome != exits.Reported {
		m.unreported.WithLabelValues(string(outcome)).Inc()
		return
	}
	if !e.FinishedAt.IsZero() {
		m.handed.Observe(secondsSince(e.FinishedAt))
	}
}

// secondsSince returns the time since an end by the runtime's stamp, or since another moment. A
// clock that was set back makes it 0: the sum of a histogram must not fall, or Prometheus takes the
// process for a new one.
func secondsSince(ended time.Time) float64 { return max(0, time.Since(ended).Seconds()) }

func (m *meter) restarted(pod exits.Ref) {
	m.restarts.WithLabelValues(m.label(pod.Namespace)).Inc()
}

// secondsFailing returns the time since a failure, 0 for none.
func secondsFailing(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return secondsSince(since)
}

// reporterStats registers the counts of a reporter.
func reporterStats(registry prometheus.Registerer, stats func() exits.Stats) error {
	value := func(of func(exits.Stats) float64) func() float64 {
		return func() float64 { return of(stats()) }
	}
	for _, c := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pleg_agent_containers",
			Help: "Number of containers followed.",
		}, value(func(s exits.Stats) float64 { return float64(s.Containers) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pleg_agent_ends_settling",
			Help: "Number of ends that wait for the read that settles their reason.",
		}, value(func(s exits.Stats) float64 { return float64(s.Settling) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "pleg_agent_ends_unsettled_total",
			Help: "Number of ends reported as last seen, since no read could settle their reason.",
		}, value(func(s exits.Stats) float64 { return float64(s.Unsettled) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "pleg_agent_reports_repeated_total",
			Help: "Number of reports of the agent before, made again because they were not sent.",
		}, value(func(s exits.Stats) float64 { return float64(s.Repeated) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "pleg_agent_state_errors_total",
			Help: "Number of failed reads and writes of the file of what was reported.",
		}, value(func(s exits.Stats) float64 { return float64(s.LedgerErrors) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pleg_agent_state_failing_seconds",
			Help: "Time in seconds for which the file of what was reported could not be written; 0: it could.",
		}, value(func(s exits.Stats) float64 { return secondsFailing(s.LedgerFailing) })),
	} {
		err := registry.Register(c)
		if err != nil {
			return err
		}
	}
	return nil
}

// timedSink measures the time from an end to its stored Event.
type timedSink struct {
	clientevents.EventSink
	stored prometheus.Observer
}

// Create stores a new event.
func (s *timedSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	stored, err := s.EventSink.Create(ctx, e)
	if err == nil {
		ended, parseErr := time.Parse(time.RFC3339Nano, e.Annotations[exits.AnnotationFinishedAt])
		if parseErr == nil {
			s.stored.Observe(secondsSince(ended))
		}
	}
	return stored, err
}
