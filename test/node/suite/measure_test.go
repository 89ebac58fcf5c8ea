// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/agent"
)

// quantiles returns p50, p99 and the largest of the samples.
func quantiles(samples []time.Duration) string {
	return spread(bench.Summarize(slices.Clone(samples)))
}

func spread(q bench.Quantiles) string {
	return fmt.Sprintf("%s/%s/%s ms (n=%d)", ms(q.P50), ms(q.P99), ms(q.Max), q.Count)
}

// ms formats a duration in milliseconds with three significant digits, at least the whole number.
func ms(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	return fmt.Sprintf("%.*f", max(0, 2-len(fmt.Sprint(int(ms)))+1), ms)
}

// latencies records figures of the events: from the runtime's stamp to Watch, with the generator's
// share from learning of the change; from a container's end to Watch, with the runtime's share
// until its stamp.
func (t *T) latencies(events []agent.Event) {
	var stamped, own, finished, runtime []time.Duration
	for _, e := range events {
		own = append(own, e.At.Sub(e.Seen))
		if !e.Stamp.IsZero() {
			stamped = append(stamped, e.At.Sub(e.Stamp))
		}
		if e.Type == pleg.ContainerDied && !e.FinishedAt.IsZero() {
			finished = append(finished, e.At.Sub(e.FinishedAt))
			if !e.Stamp.IsZero() {
				runtime = append(runtime, e.Stamp.Sub(e.FinishedAt))
			}
		}
	}
	byKind := map[string][]time.Duration{}
	for _, e := range events {
		kind := e.Kind + " " + string(e.Type) + " by a " + e.Cause
		byKind[kind] = append(byKind[kind], e.At.Sub(e.Seen))
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		t.Logf("learned→Watch, %s: %s", kind, quantiles(byKind[kind]))
	}
	t.Figure("created_at→Watch", "%s", quantiles(stamped))
	t.Figure("learned→Watch", "%s", quantiles(own))
	t.Figure("finished_at→Watch", "%s", quantiles(finished))
	t.Figure("finished_at→created_at", "%s", quantiles(runtime))
}

// types counts the events of an ID by type.
func types(events []agent.Event, id string) map[string]int {
	count := map[string]int{}
	for _, e := range events {
		if e.ID == id {
			count[string(e.Type)]++
		}
	}
	return count
}

// waits records the measurements of the agent's pod workers, and fails the scenario if
// one waited longer than it should while the runtime answered.
func (t *T) waits(a *Agent) {
	w := a.MustStats().Workers
	t.Figure("GetNewerThan", "%s", spread(w.Waits))
	if w.Checked == 0 {
		t.Errorf("%s: no answer of GetNewerThan could be compared with the runtime", a.name)
	}
}

// The metrics by which the enhancement measures stress and loss.
const (
	metricLatency = "kubelet_evented_pleg_connection_latency_seconds"
	metricMissed  = "kube_pod_missed_events"
)

// noneMissed fails the scenario if the agent counts sent events as missed. An event later than the
// agent's grace of 2 s is rightly counted, so a machine with events of a second gets a figure
// instead.
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
