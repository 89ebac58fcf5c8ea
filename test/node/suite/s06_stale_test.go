// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"

	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// stale makes the runtime send older payloads with newer stamps, and shows that neither the cache
// nor an event goes back. The hazard is a race in the runtime: rounds go on until it was seen.
func stale(t *T) {
	n := t.NewNode()
	a := n.NewAgent()
	a.WaitConnected()
	raw := n.Record()
	rounds, most := t.Size(10, 3), t.Size(40, 6)
	containers := 0
	ran := 0
	for round := range most {
		var pods []*crikit.Pod
		for p := range 8 {
			pods = append(pods, n.Pod(fmt.Sprintf("r%dp%d", round, p)))
		}
		var ids []string
		for _, made := range n.Burst(pods, 10, 10, "c", "exit", "0") {
			ids = append(ids, made...)
		}
		for _, id := range ids {
			n.Exited(id)
		}
		containers += len(ids)
		// Removal beside removal is where deleted containers reappear.
		each(n, ids, func(ctx context.Context, id string) error { return n.Remove(ctx, id) })
		each(n, pods, func(ctx context.Context, pod *crikit.Pod) error { return n.Delete(ctx, pod.SandboxID) })
		ran++
		if _, found := raw.soFar(); ran >= rounds && len(found) > 0 {
			break
		}
	}
	a.Converge()
	if held := a.Cache(); len(held) != 0 {
		t.Errorf("every pod is gone, and the cache holds %d", len(held))
	}
	sent, found := raw.soFar()
	newer := 0
	for _, e := range found {
		t.Logf("stale: %s of %s: %q", e.Type, e.ID, e.Flaws)
		if !hasFlaw(e, stream.StampBack) {
			newer++
		}
	}
	events := a.Events()
	stats := a.Stats()
	t.Figure("rounds", "%d", ran)
	t.Figure("containers", "%d", containers)
	t.Figure("raw events", "%d", sent)
	if len(found) > 0 {
		t.Figure("stale payloads sent", "%d", len(found))
		t.Figure("with a newer stamp", "%d", newer)
	} else {
		t.Figure("stale payloads sent", "none in %d rounds: the hazard did not occur", ran)
	}
	t.Figure("regressions of the cache", "%d", stats.Regressions)
	if stats.Regressions != 0 || stats.Overruled != 0 {
		t.Errorf("regressions %d, overruled claims %d, want none", stats.Regressions, stats.Overruled)
	}
	t.latencies(events)
	t.waits(a)
}
