// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"slices"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// away keeps the runtime down for longer than five attempts to reconnect take,
// after which the kubelet's evented PLEG has given up for ever.
func away(t *T) {
	n := t.NewNode()
	gone := time.Duration(t.Size(95, 10)) * time.Second
	a := n.NewAgent(func(c *worker.Config) {
		if *bounded { // the schedule of the enhancement, ten times as fast
			c.ReconnectBase, c.ReconnectMax, c.ReconnectSteady = 100*time.Millisecond, 6400*time.Millisecond, 6*time.Second
		}
	})
	a.WaitConnected()
	pod := n.Pod("pod")
	id, pid := n.Mortal(pod, "c", 5)
	a.WaitEvent(bench.Running, id)
	before := a.Stats()
	n.StopRuntime(syscall.SIGTERM)
	a.WaitState(pleg.StreamBackoff)
	stopped := time.Now()
	n.End(id, pid)
	a.waitErrors(before.ConnectErrors + 6)
	t.Sleep(gone - time.Since(stopped))
	attempts := a.Stats().ConnectErrors - before.ConnectErrors
	if health := a.Stats().Health; health != "" {
		t.Errorf("a runtime that was away for %v makes the agent unhealthy below its threshold of 3 minutes: %s", gone, health)
	}
	isSandbox := func(i bench.Item) bool { return i.Sandbox }
	if held := slices.DeleteFunc(bench.ItemsOf(a.Cache(), pod.UID), isSandbox); len(held) != 1 || held[0].ID != id {
		t.Errorf("while the runtime was away the last status was lost: %v", held)
	}
	back := time.Now()
	n.StartRuntime()
	died := a.WaitEvent(bench.Exited, id)
	a.Converge()
	converged := time.Since(back)
	a.WaitConnected()
	t.Figure("away", "%v", gone)
	t.Figure("failed connections", "%d", attempts)
	t.Figure("back→ContainerDied", "%dms", since(back, died.At).Milliseconds())
	t.Figure("back→converged", "%dms", converged.Milliseconds())
	t.Figure("back→connected", "%.1fs", time.Since(back).Seconds())
	t.waits(a)
}
