// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// stress creates containers at the full speed of the machine, in a single pod and in many, lets
// them run to completion and removes them.
func stress(t *T) {
	n := t.NewNode()
	// Workers would compete with the runtime for the machine.
	a := n.NewAgent(withoutWorkers)
	a.WaitConnected()
	raw := n.Record()

	inOne, pods, each10 := t.Size(200, 40), t.Size(40, 10), 10
	began := time.Now()
	one := n.Pod("one")
	ids := n.Burst([]*crikit.Pod{one}, inOne, 8, "c", "exit", "0")[one.UID]
	var many []*crikit.Pod
	for p := range pods {
		many = append(many, n.Pod(fmt.Sprintf("many%d", p)))
	}
	for at := 0; at < len(many); at += 8 {
		for _, made := range n.Burst(many[at:min(at+8, len(many))], each10, 1, "c", "exit", "0") {
			ids = append(ids, made...)
		}
	}
	for _, id := range ids {
		n.Exited(id)
	}
	ran := time.Since(began)
	full := a.Converge()
	each(n, ids, func(ctx context.Context, id string) error { return n.Remove(ctx, id) })
	each(n, append(many, one), func(ctx context.Context, pod *crikit.Pod) error { return n.Delete(ctx, pod.SandboxID) })
	empty := a.Converge()

	sandboxes := len(many) + 1
	// CREATED, STARTED, STOPPED, DELETED of each container, and the runtime's events of a sandbox.
	want := 0
	if n.Traits.Events {
		want = 4*len(ids) + n.Traits.SandboxEvents*sandboxes
	}
	t.Eventually(settle, "every event of the runtime has reached the agent", func() error {
		if got := a.Metrics()[worker.MetricLatency+"_count"]; int(got) != want {
			return fmt.Errorf("%s_count is %v, want %d", worker.MetricLatency, got, want)
		}
		return nil
	})
	t.Eventually(settle, "every event of the runtime has reached another subscriber", func() error {
		if got, _ := raw.soFar(); got != want {
			return fmt.Errorf("%d have, want %d", got, want)
		}
		return nil
	})
	events := a.Events()
	for _, id := range ids {
		if count := types(events, id); count[bench.Exited] != 1 || count[bench.Removed] != 1 || count[bench.Running] > 1 {
			t.Errorf("container %s: events %v, want one Died, one Removed and at most one Started", id, count)
		}
	}
	metrics := a.Metrics()
	t.noneMissed(a, int(metrics[worker.MetricMissed]), "")
	if held := a.Cache(); len(held) != 0 {
		t.Errorf("every pod is gone, and the cache holds %d", len(held))
	}
	owed := 0
	for _, e := range events {
		if e.ID == "" {
			owed++
		}
	}
	stats := a.Stats()
	t.Figure("containers", "%d", len(ids))
	t.Figure("rate", "%.0f/s", float64(len(ids))/ran.Seconds())
	t.Figure("CRI events", "%d", want)
	for _, le := range []string{"0.001", "0.01", "0.1", "1"} {
		t.Figure("≤"+le+"s", "%.1f%%", 100*metrics[worker.MetricLatency+`_bucket{le="`+le+`"}`]/float64(max(want, 1)))
	}
	t.Figure("PodSync", "%d", owed)
	t.Figure("relists", "%d", stats.Relists)
	t.Figure("converged", "%dms+%dms", full.Milliseconds(), empty.Milliseconds())
	t.latencies(events)
}
