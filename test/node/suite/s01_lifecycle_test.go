// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// lifecycle takes pods through every change of a container, and compares the events and the cache
// with each.
func lifecycle(t *T) {
	n := t.NewNode()
	a := n.NewAgent()
	a.WaitConnected()
	var events []bench.Delivery
	for round := range t.Size(10, 3) {
		oneLife(t, n, a, fmt.Sprintf("life%d", round))
	}
	events = a.Events()
	t.latencies(events)
	t.waits(a)
	g := a.Stats()
	t.Figure("events", "%d", len(events))
	t.Figure("missed", "%d", g.Missed)
	if held := a.Cache(); len(held) != 0 {
		t.Errorf("every pod is gone, and the cache holds %v", held)
	}
}

func oneLife(t *T, n *Node, a *Agent, name string) {
	pod := n.Pod(name)
	a.WaitEvent(bench.Running, pod.SandboxID)

	// expect waits for the end of a container and checks the cache.
	expect := func(id string, codes ...int32) {
		status := n.Exited(id)
		code := status.ExitCode
		if !slices.Contains(codes, code) {
			t.Errorf("the runtime says that %s exited with %d, want %d", id, code, codes)
		}
		a.WaitEvent(bench.Exited, id)
		held := bench.Find(a.Cache(), pod.UID, id)
		if held.State != bench.Exited || held.ExitCode != code {
			t.Errorf("after ContainerDied of %s the cache says %v, want exit code %d", id, held, code)
		}
	}
	zero := n.Container(pod, "zero", "exit", "0")
	expect(zero, 0)
	three := n.Container(pod, "three", "exit", "3")
	expect(three, 3)

	killed := n.Container(pod, "killed", "sleep", "1h")
	a.WaitEvent(bench.Running, killed)
	t.Check(n.Stop(t.ctx, killed, 0))
	expect(killed, n.Traits.StopNowCodes...)

	oom, err := n.CreateAndStart(t.ctx, pod, crikit.Spec{Name: "oom", Args: []string{"eat", "256"}, Memory: 32 << 20})
	t.Check(err)
	expect(oom, 137)

	// A restart is a new container of the same name beside the old container.
	again, err := n.CreateAndStart(t.ctx, pod, crikit.Spec{Name: "three", Attempt: 1, Args: []string{"sleep", "1h"}})
	t.Check(err)
	a.WaitEvent(bench.Running, again)
	a.Converge()
	t.Check(n.Remove(t.ctx, three))
	a.WaitEvent(bench.Removed, three)
	a.Converge()

	t.Check(n.StopPod(t.ctx, pod.SandboxID))
	a.WaitEvent(bench.Exited, again)
	a.WaitEvent(bench.Exited, pod.SandboxID)
	a.Converge()
	t.Check(n.RemovePod(t.ctx, pod.SandboxID))
	for _, id := range []string{zero, killed, oom, again, pod.SandboxID} {
		a.WaitEvent(bench.Removed, id)
	}
	took := a.Converge()
	t.Logf("%s: the pod was gone from the cache after %v", name, took.Round(time.Millisecond))

	events := a.Events()
	for what, id := range map[string]string{
		"exit 0": zero, "exit 3": three, "killed": killed, "OOM killed": oom, "restarted": again, "sandbox": pod.SandboxID,
	} {
		count := types(events, id)
		if count[bench.Exited] != 1 || count[bench.Removed] != 1 || count[bench.Running] > 1 {
			t.Errorf("%s (%s): events %v, want one Died, one Removed and at most one Started", what, id, count)
		}
	}
}
