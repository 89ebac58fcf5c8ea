// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"maps"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/agent"
	"github.com/evented-pleg/evented-pleg/test/node/report"
)

// latencies records figures of the events: from the runtime's stamp to Watch, and
// of that the generator's share, from its learning of the change; from a
// container's end to Watch, and of that the runtime's share, until it stamps the
// event.
func (t *T) latencies(events []agent.Event) {
	var stamped, own, finished, runtime []time.Duration
	for _, e := range events {
		own = append(own, e.At.Sub(e.Seen))
		if !e.Stamp.IsZero() {
			stamped = append(stamped, e.At.Sub(e.Stamp))
		}
		if e.Type == string(pleg.ContainerDied) && !e.FinishedAt.IsZero() {
			finished = append(finished, e.At.Sub(e.FinishedAt))
			if !e.Stamp.IsZero() {
				runtime = append(runtime, e.Stamp.Sub(e.FinishedAt))
			}
		}
	}
	byKind := map[string][]time.Duration{}
	for _, e := range events {
		kind := e.Kind + " " + e.Type + " by a " + e.Cause
		byKind[kind] = append(byKind[kind], e.At.Sub(e.Seen))
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		t.Logf("learned→Watch, %s: %s", kind, report.Quantiles(byKind[kind]))
	}
	t.Figure("created_at→Watch", "%s", report.Quantiles(stamped))
	t.Figure("learned→Watch", "%s", report.Quantiles(own))
	t.Figure("finished_at→Watch", "%s", report.Quantiles(finished))
	t.Figure("finished_at→created_at", "%s", report.Quantiles(runtime))
}

// types counts the events of one ID by type.
func types(events []agent.Event, id string) map[string]int {
	count := map[string]int{}
	for _, e := range events {
		if e.ID == id {
			count[e.Type]++
		}
	}
	return count
}

// waits records what the agent's pod workers measured, and fails the scenario if
// one waited longer than it should while the runtime answered.
func (t *T) waits(a *Agent) {
	w := a.MustStats().Workers
	t.Figure("GetNewerThan", "%s/%s/%sms(n=%d)", report.Millis(w.WaitP50), report.Millis(w.WaitP99), report.Millis(w.WaitMax), w.Checked)
	if w.Checked == 0 {
		t.Errorf("%s: no answer of GetNewerThan could be compared with the runtime", a.name)
	}
}

// The metrics by which the enhancement measures stress and loss.
const (
	metricLatency = "kubelet_evented_pleg_connection_latency_seconds"
	metricMissed  = "kube_pod_missed_events"
)

// noneMissed fails the scenario if the agent counts events as missed that the
// runtime sent. An event that comes later than the agent's grace of 2 s is
// rightly counted, so on a machine so slow that events took a second there is a
// figure instead.
func (t *T) noneMissed(a *Agent, missed int, during string) {
	if missed == 0 {
		return
	}
	metrics, err := a.Metrics(t.ctx)
	t.Check(err)
	late := metrics[metricLatency+"_count"] - metrics[metricLatency+`_bucket{le="1"}`]
	if late == 0 {
		t.Errorf("%s%s: %d events counted as missed, and none was lost or late", a.name, during, missed)
		return
	}
	t.Figure("missed"+during, "%d, with %.0f events later than 1 s", missed, late)
}
