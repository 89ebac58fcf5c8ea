// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// static makes a pod's sandbox anew under the same UID, like the kubelet with static pods, at once
// and during the deletion of the old sandbox. The old sandbox's DELETED must not touch the new
// sandbox, and a pod worker must see the new sandbox at once.
func static(t *T) {
	n := t.NewNode()
	a := n.NewAgent()
	a.WaitConnected()
	uid := n.UID("static")
	pod, err := n.RunPod(t.ctx, uid, "static", 0)
	t.Check(err)
	runs := n.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(bench.Running, runs)

	var seen []time.Duration
	rounds := t.Size(20, 8)
	var gone, goneContainers []string
	for round := 1; round <= rounds; round++ {
		var removal sync.WaitGroup
		var failed error
		old := pod
		if round%2 == 0 {
			// Stopped first, deleted beside the start of the new one.
			t.Check(n.StopPod(t.ctx, old.SandboxID))
			removal.Go(func() { failed = n.RemovePod(t.ctx, old.SandboxID) })
		}
		pod, err = n.RunPod(t.ctx, uid, "static", uint32(round))
		t.Check(err)
		began := time.Now()
		newer := a.Newer(uid)
		seen = append(seen, time.Since(began))
		if bench.Find(newer, uid, pod.SandboxID).State != bench.Running {
			t.Errorf("round %d: asked after the new sandbox was ready, the cache answers %v", round, newer)
		}
		if round%2 == 1 {
			// Both are there at once; the old sandbox is deleted beside a start.
			removal.Go(func() { failed = n.Delete(t.ctx, old.SandboxID) })
		}
		gone, goneContainers = append(gone, old.SandboxID), append(goneContainers, runs)
		runs, err = n.CreateAndStart(t.ctx, pod, crikit.Spec{Name: "c", Attempt: uint32(round), Args: []string{"sleep", "1h"}})
		t.Check(err)
		newer = a.Newer(uid)
		if bench.Find(newer, uid, runs).State != bench.Running {
			t.Errorf("round %d: asked after the new container ran, the cache answers %v", round, newer)
		}
		removal.Wait()
		t.Check(failed)
		a.WaitEvent(bench.Running, runs)
		a.WaitEvent(bench.Removed, old.SandboxID)
		a.Converge()
	}
	events := a.Events()
	for _, id := range append(gone, goneContainers...) {
		if count := types(events, id); count[bench.Exited] != 1 || count[bench.Removed] != 1 {
			t.Errorf("%s: events %v, want one Died and one Removed", id, count)
		}
	}
	for _, id := range []string{pod.SandboxID, runs} {
		if count := types(events, id); count[bench.Exited]+count[bench.Removed] > 0 {
			t.Errorf("%s lives, and the agent told %v", id, count)
		}
	}
	t.Check(n.Delete(context.WithoutCancel(t.ctx), pod.SandboxID))
	a.Converge()
	t.Figure("sandboxes of one pod", "%d", rounds+1)
	t.Figure("ready→GetNewerThan", "%s", quantiles(seen))
	t.latencies(events)
	t.waits(a)
}
