// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// recovery kills the agent while a container runs; the container ends while no agent is there; the
// next agent must tell its end and its exit code.
func recovery(t *T) {
	for round, code := range []int32{0, 7} {
		before := t.Connect()
		pod := t.Pod([]string{"first", "second"}[round])
		id, pid := t.Mortal(pod, "c", code)
		before.WaitEvent(pleg.PhaseRunning, id)
		before.Kill()
		t.End(id, pid)
		if status := t.Exited(id); status.ExitCode != code {
			t.Fatalf("the runtime says exit code %d, want %d", status.ExitCode, code)
		}
		began := time.Now()
		after := t.NewAgent()
		event := after.WaitEvent(pleg.PhaseExited, id)
		t.Figure("restart→Watch", "%dms", since(began, event.At).Milliseconds())
		held := bench.Find(after.Cache(), pod.UID, id)
		if held.State != pleg.PhaseExited || held.ExitCode != code ||
			(code == 0) != (held.Reason == "Completed") {
			t.Errorf("the restarted agent holds %v, want exit code %d", held, code)
		}
		after.Converge()
		after.WaitConnected()
		after.Kill()
	}
}

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
	length, up := t.Seconds(300, 40), t.Seconds(60, 15)
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
	// A stream of 2 s counts as stable, so each loss begins at the first step of the backoff, like
	// losses hours apart.
	a := t.Connect(stableAfter(2 * time.Second))
	l := t.StartLoad(3, 3, 600*time.Millisecond)
	var down, connected, rested []time.Duration
	round, missedUp := 0, 0
	for ; goOn(round); round++ {
		began := a.Stats()
		t.Sleep(up)
		before := a.Stats()
		if missed := before.Missed - began.Missed; up > 0 && t.Traits.Events {
			missedUp += missed
			a.noneMissed(missed, ", while the runtime was up")
		}
		pod := t.Pod(fmt.Sprintf("witness%d", round))
		witness, pid := t.Mortal(pod, "witness", 3)
		a.WaitEvent(pleg.PhaseRunning, witness)
		stopped := time.Now()
		t.StopRuntime(signals[round%len(signals)])
		if t.Traits.Events {
			a.WaitState(pleg.StreamBackoff)
			a.waitErrors(before.ConnectErrors + 1)
		}
		t.End(witness, pid)
		t.StartRuntime()
		ready := time.Now()
		down = append(down, ready.Sub(stopped))

		a.WaitEvent(pleg.PhaseExited, witness)
		a.WaitConnected()
		connected = append(connected, time.Since(ready))
		l.Paused(func() { // CRI-O leaves some calls made soon after its start unanswered, for two minutes
			rested = append(rested, time.Since(ready))
			a.Converge()
		})
		after := a.Stats()
		t.Logf(
			"round %d: witness %v; connected after %v, the load at rest after %v; missed %d→%d",
			round,
			bench.Find(
				a.Cache(),
				pod.UID,
				witness,
			),
			connected[round],
			rested[round],
			before.Missed,
			after.Missed,
		)
		errors := after.ConnectErrors - before.ConnectErrors
		if t.Traits.Events && (after.Connects != before.Connects+1 || errors == 0) {
			t.Errorf("round %d: connects %d→%d, %d errors, want one more connection after at least one error",
				round, before.Connects, after.Connects, errors)
		}
		t.Check(t.Delete(t.ctx, pod.SandboxID))
		// more than the grace after which a change that no event told counts as missed
		t.Sleep(3 * time.Second)
	}
	l.Stop()
	a.Converge()
	t.Figure("restarts", "%d", round)
	t.Figure("changes", "%d", l.Stats().Changes)
	t.Figure("down", "%s", quantiles(down))
	t.Figure("ready→connected", "%s", quantiles(connected))
	t.Figure("ready→load at rest", "%s", quantiles(rested))
	t.Figure("missed while up", "%d", missedUp)
}

// away keeps the runtime down for longer than five attempts to reconnect take, after which the
// kubelet's evented PLEG has given up for ever.
func away(t *T) {
	gone := t.Seconds(95, 10)
	a := t.Connect(func(c *worker.Config) {
		if *bounded { // the schedule of the enhancement, ten times as fast
			c.ReconnectBase, c.ReconnectMax, c.ReconnectSteady = 100*time.Millisecond, 6400*time.Millisecond, 6*time.Second
		}
	})
	pod := t.Pod("pod")
	id, pid := t.Mortal(pod, "c", 5)
	a.WaitEvent(pleg.PhaseRunning, id)
	before := a.Stats()
	t.StopRuntime(syscall.SIGTERM)
	a.WaitState(pleg.StreamBackoff)
	stopped := time.Now()
	t.End(id, pid)
	a.waitErrors(before.ConnectErrors + 6)
	t.Sleep(gone - time.Since(stopped))
	t.Figure("failed connections", "%d", a.Stats().ConnectErrors-before.ConnectErrors)
	if health := a.Stats().Health; health != "" {
		t.Errorf(
			"a runtime that was away for %v makes the agent unhealthy below its threshold of 3 minutes: %s",
			gone,
			health,
		)
	}
	isSandbox := func(i bench.Item) bool { return i.Sandbox }
	if held := slices.DeleteFunc(bench.ItemsOf(a.Cache(), pod.UID), isSandbox); len(held) != 1 || held[0].ID != id {
		t.Errorf("while the runtime was away the last status was lost: %v", held)
	}
	back := time.Now()
	t.StartRuntime()
	died := a.WaitEvent(pleg.PhaseExited, id)
	t.Figure("away", "%v", gone)
	t.Figure("back→ContainerDied", "%dms", since(back, died.At).Milliseconds())
	a.Converge()
	t.Figure("back→converged", "%dms", time.Since(back).Milliseconds())
	a.WaitConnected()
	t.Figure("back→connected", "%.1fs", time.Since(back).Seconds())
}
