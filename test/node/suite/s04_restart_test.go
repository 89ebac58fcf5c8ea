// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// restart stops and kills the runtime again and again under load, with a container that ends during
// an outage. Each time the agent must find its way back to the stream, by its own means, and equal
// the runtime.
func restart(t *T) {
	n := t.NewNode()
	// A stream of 2 s counts as stable, so each loss begins at the first step of the backoff, like
	// losses hours apart.
	a := n.NewAgent("--stable-after", "2s")
	a.WaitConnected()
	l := n.StartLoad(3, 3, 600*time.Millisecond)
	var down, connected, converged []time.Duration
	rounds := t.Size(20, 4)
	for round := range rounds {
		signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[round%2]
		pod := n.Pod(fmt.Sprintf("witness%d", round))
		lives := "300ms"
		if !n.Traits.Events {
			lives = "2s" // a poll each second must find it running
		}
		witness := n.Container(pod, "witness", "sleep", lives, "3")
		a.WaitEvent(pleg.ContainerStarted, witness)
		before := a.MustStats().Generator
		began := time.Now()
		n.StopRuntime(signal)
		if n.Traits.Events {
			a.WaitState(pleg.StreamBackoff)
		}
		t.Sleep(time.Second) // the witness ends meanwhile
		n.StartRuntime()
		ready := time.Now()
		down = append(down, ready.Sub(began))

		a.WaitEvent(pleg.ContainerDied, witness)
		a.WaitConnected()
		connected = append(connected, time.Since(ready))
		l.Paused(func() {
			a.Converge()
			converged = append(converged, time.Since(ready))
			held := bench.Find(a.MustCache(), pod.UID, witness)
			t.Logf("round %d, %v: witness %v; connected after %v, converged after %v", round, signal, held,
				connected[round].Round(time.Millisecond), converged[round].Round(time.Millisecond))
		})
		after := a.MustStats().Generator
		if n.Traits.Events && (after.Connects != before.Connects+1 || after.ConnectErrors <= before.ConnectErrors) {
			t.Errorf("round %d: connects %d→%d, connect errors %d→%d, want one more connection after at least one error",
				round, before.Connects, after.Connects, before.ConnectErrors, after.ConnectErrors)
		}
		t.Check(n.Delete(t.ctx, pod.SandboxID))
		t.Sleep(2 * time.Second)
	}
	l.Stop()
	a.Converge()
	t.Figure("restarts", "%d", rounds)
	t.Figure("containers", "%d", l.made.Load())
	t.Figure("down", "%s", quantiles(down))
	t.Figure("ready→connected", "%s", quantiles(connected))
	t.Figure("ready→converged", "%s", quantiles(converged))
	t.Figure("missed", "%d", a.MustStats().Generator.Missed)
	t.latencies(a.MustEvents())
	t.waits(a)
}
