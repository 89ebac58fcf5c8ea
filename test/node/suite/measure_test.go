// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// quantiles returns p50, p99 and the largest of the samples.
func quantiles(samples []time.Duration) string {
	q := bench.Summarize(slices.Clone(samples))
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
func (t *T) latencies(events []bench.Delivery) {
	var stamped, own, finished, runtime []time.Duration
	for _, e := range events {
		own = append(own, time.Duration(e.At-e.Seen))
		if e.Stamp != 0 {
			stamped = append(stamped, time.Duration(e.At-e.Stamp))
		}
		if e.State == bench.Exited && e.FinishedAt != 0 {
			finished = append(finished, time.Duration(e.At-e.FinishedAt))
			if e.Stamp != 0 {
				runtime = append(runtime, time.Duration(e.Stamp-e.FinishedAt))
			}
		}
	}
	t.Figure("created_at→Watch", "%s", quantiles(stamped))
	t.Figure("learned→Watch", "%s", quantiles(own))
	t.Figure("finished_at→Watch", "%s", quantiles(finished))
	t.Figure("finished_at→created_at", "%s", quantiles(runtime))
}

// cause is what reported the change of an event first.
func cause(e bench.Delivery) string {
	if e.Claim {
		return "claim"
	}
	return "read"
}

// types counts the events of an ID by state.
func types(events []bench.Delivery, id string) map[bench.State]int {
	count := map[bench.State]int{}
	for _, e := range events {
		if e.ID == id {
			count[e.State]++
		}
	}
	return count
}

// waits records the measurements of the agent's pod workers, and fails the scenario if
// one waited longer than it should while the runtime answered.
func (t *T) waits(a *Agent) {
	waits := a.Waits()
	t.Figure("GetNewerThan", "%s", quantiles(waits))
	if len(waits) == 0 {
		t.Errorf("%s: no answer of GetNewerThan could be compared with the runtime", a.name)
	}
}

// noneMissed fails the scenario if the agent counts sent events as missed. An event later than the
// agent's grace of 2 s is rightly counted, so a machine with events of a second gets a figure
// instead.
func (t *T) noneMissed(a *Agent, missed int, during string) {
	if missed == 0 {
		return
	}
	metrics := a.Metrics()
	late := metrics[worker.MetricLatency+"_count"] - metrics[worker.MetricLatency+`_bucket{le="1"}`]
	if late == 0 {
		t.Errorf("%s%s: %d events counted as missed, and none was lost or late", a.name, during, missed)
		return
	}
	t.Figure("missed"+during, "%d, with %.0f events later than 1 s", missed, late)
}
