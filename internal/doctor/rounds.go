// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/doctor/findings"
)

const (
	// RoundAtLeast is the shortest time between two examinations.
	RoundAtLeast = 10 * time.Second
	// roundWithin is how long an examination may take, and half of the time between two at most.
	roundWithin = 30 * time.Second
	// voidLag is how late, in seconds, a program may get the CPU before its examination proves nothing:
	// calls seem to hang. The next examination then follows after voidPause.
	voidLag   = 1.0
	voidPause = time.Minute
)

// Rounds examines a runtime again and again, and serves the last report as metrics. They have IDs
// and areas of package findings as labels: names of pods and errors stand in the report alone.
type Rounds struct {
	// Every is the time between two examinations. The first examination comes at a moment of this time
	// that differs between nodes, and each time is a tenth longer or shorter: the nodes of a fleet do
	// not examine at once.
	Every time.Duration
	// Examine makes an examination of at most the given time.
	Examine func(ctx context.Context, within time.Duration) Report
	// Tell takes each report.
	Tell func(Report)

	mu    sync.Mutex // owns the fields below
	ended time.Time  // the end of the last examination, or the begin of Run
	last  *Report
	calls int
}

var _ prometheus.Collector = (*Rounds)(nil)

// Run examines until ctx ends.
func (r *Rounds) Run(ctx context.Context) {
	r.mu.Lock()
	r.ended = time.Now()
	r.mu.Unlock()
	pause := rand.N(r.Every)
	for bench.Sleep(ctx, pause) == nil {
		report := r.Examine(ctx, min(roundWithin, r.Every/2))
		if ctx.Err() != nil {
			return // which cut the examination short
		}
		pause = r.Every*9/10 + rand.N(r.Every/5)
		if !r.enter(report) {
			pause = min(pause, voidPause)
			continue
		}
		if r.Tell != nil {
			r.Tell(report)
		}
	}
}

// enter makes a report the last report, unless the report proves nothing.
func (r *Rounds) enter(report Report) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range report.Calls {
		r.calls += c.Count
	}
	if report.lag > voidLag {
		return false
	}
	r.ended = time.Now()
	r.last = &report
	return true
}

// desc describes a metric with labels.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	foundDesc = desc(
		findings.Found,
		"Findings of the last examination, sick and costly ones.",
		"finding",
		"grade",
	)
	worthDesc = desc(
		findings.Worth,
		"1 for the outcome of the last examination: well, sick or unknown.",
		"worth",
	)
	unseenDesc = desc(findings.Unseen, "1 for each area that the last examination could not look at.", "area")
	ageDesc    = desc(findings.Age, "Time since the end of the last examination, or since the start.")
	periodDesc = desc(findings.Period, "Time between two examinations.")
	callsDesc  = desc(findings.Calls, "Calls to the runtime by examinations.")
)

// Describe implements prometheus.Collector.
func (r *Rounds) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{foundDesc, worthDesc, unseenDesc, ageDesc, periodDesc, callsDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r *Rounds) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(ageDesc, time.Since(r.ended).Seconds())
	gauge(periodDesc, r.Every.Seconds())
	to <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(r.calls))
	if r.last == nil {
		return
	}
	gauge(worthDesc, 1, string(r.last.Worth))
	for _, u := range r.last.Unseen {
		gauge(unseenDesc, 1, u.Area)
	}
	type kind struct {
		id    string
		grade Grade
	}
	found := make(map[kind]int)
	for _, f := range r.last.Findings {
		if f.Grade != Note {
			found[kind{f.ID, f.Grade}]++
		}
	}
	for k, n := range found {
		gauge(foundDesc, float64(n), k.id, string(k.grade))
	}
}
