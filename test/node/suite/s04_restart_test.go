// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// envSoak is the length of the soak, a Go duration, in place of the default of some minutes.
const envSoak = "NODE_E2E_SOAK"

// restart stops and kills the runtime again and again under load, with a container that ends during
// an outage. Each time the agent must find its way back to the stream, by its own means, and equal
// the runtime.
func restart(t *T) {
	rounds := t.Size(20, 4)
	outages(t, func(round int) bool { return round < rounds }, 0, syscall.SIGTERM, syscall.SIGKILL)
}

// soak kills the runtime once a minute under load. While up, none of its events may be missed.
func soak(t *T) {
	length, up := time.Duration(t.Size(300, 40))*time.Second, time.Duration(t.Size(60, 15))*time.Second
	if text := os.Getenv(envSoak); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		t.Check(err)
		up = time.Minute
	}
	t.Figure("length", "%v", length)
	end := time.Now().Add(length)
	outages(t, func(int) bool { return time.Now().Before(end) }, up, syscall.SIGKILL)
}

// outages stops the runtime with the signals by turns, while goOn says so, each time after an up
// time.
func outages(t *T, goOn func(round int) bool, up time.Duration, signals ...syscall.Signal) {
	n := t.NewNode()
	// A stream of 2 s counts as stable, so each loss begins at the first step of the backoff, like
	// losses hours apart.
	a := n.NewAgent(stableAfter(2 * time.Second))
	a.WaitConnected()
	l := n.StartLoad(3, 3, 600*time.Millisecond)
	var down, connected, converged []time.Duration
	round, missedUp := 0, 0
	for ; goOn(round); round++ {
		began := a.Stats()
		t.Sleep(up)
		before := a.Stats()
		if missed := before.Missed - began.Missed; up > 0 && n.Traits.Events {
			missedUp += missed
			t.noneMissed(a, missed, ", while the runtime was up")
		}
		pod := n.Pod(fmt.Sprintf("witness%d", round))
		witness, pid := n.Mortal(pod, "witness", 3)
		a.WaitEvent(bench.Running, witness)
		stopped := time.Now()
		n.StopRuntime(signals[round%len(signals)])
		if n.Traits.Events {
			a.WaitState(pleg.StreamBackoff)
			a.waitErrors(before.ConnectErrors + 1)
		}
		n.End(witness, pid)
		n.StartRuntime()
		ready := time.Now()
		down = append(down, ready.Sub(stopped))

		a.WaitEvent(bench.Exited, witness)
		a.WaitConnected()
		connected = append(connected, time.Since(ready))
		l.Paused(func() {
			a.Converge()
			converged = append(converged, time.Since(ready))
		})
		after := a.Stats()
		t.Logf("round %d: witness %v; connected after %v, converged after %v; missed %d→%d", round,
			bench.Find(a.Cache(), pod.UID, witness), connected[round], converged[round], before.Missed, after.Missed)
		errors := after.ConnectErrors - before.ConnectErrors
		if n.Traits.Events && (after.Connects != before.Connects+1 || errors == 0) {
			t.Errorf("round %d: connects %d→%d, %d errors, want one more connection after at least one error",
				round, before.Connects, after.Connects, errors)
		}
		t.Check(n.Delete(t.ctx, pod.SandboxID))
		// more than the grace after which a change that no event told counts as missed
		t.Sleep(3 * time.Second)
	}
	l.Stop()
	a.Converge()
	stats := a.Stats()
	t.Figure("restarts", "%d", round)
	t.Figure("changes", "%d", l.Stats().Changes)
	t.Figure("down", "%s", quantiles(down))
	t.Figure("ready→connected", "%s", quantiles(connected))
	t.Figure("ready→converged", "%s", quantiles(converged))
	t.Figure("missed while up", "%d", missedUp)
	t.Figure("missed", "%d", stats.Missed)
	t.latencies(a.Events())
	t.waits(a)
}

// waitErrors waits until the agent counts that many failed connections.
func (a *Agent) waitErrors(count int) {
	a.n.t.Eventually(settle, fmt.Sprintf("%s counts %d failed connections", a.name, count), func() error {
		if got := a.Stats().ConnectErrors; got < count {
			return fmt.Errorf("it counts %d", got)
		}
		return nil
	})
}
