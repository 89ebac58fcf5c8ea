// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// away keeps the runtime down for longer than five attempts to reconnect take,
// after which the kubelet's evented PLEG has given up for ever.
func away(t *T) {
	n := t.NewNode()
	flags, gone := []string{}, 95*time.Second
	if *bounded {
		// The schedule of the enhancement, ten times as fast.
		flags, gone = []string{"--reconnect-base", "100ms", "--reconnect-max", "6400ms", "--reconnect-steady", "6s"}, 10*time.Second
	}
	a := n.NewAgent(flags...)
	a.WaitConnected()
	pod := n.Pod("pod")
	id, pid := n.Mortal(pod, "c", 5)
	a.WaitEvent(pleg.ContainerStarted, id)
	before := a.MustStats().Generator
	n.StopRuntime(syscall.SIGTERM)
	a.WaitState(pleg.StreamBackoff)
	stopped := time.Now()
	n.End(id, pid)
	a.waitErrors(before.ConnectErrors + 6)
	t.Sleep(gone - time.Since(stopped))
	attempts := a.MustStats().Generator.ConnectErrors - before.ConnectErrors
	if err := a.Health(t.ctx); err != nil {
		t.Errorf("a runtime that was away for %v makes the agent unhealthy below its threshold of 3 minutes: %v", gone, err)
	}
	isSandbox := func(i bench.Item) bool { return i.Sandbox }
	if held := slices.DeleteFunc(bench.ItemsOf(a.MustCache(), pod.UID), isSandbox); len(held) != 1 || held[0].ID != id {
		t.Errorf("while the runtime was away the last status was lost: %v", held)
	}
	back := time.Now()
	n.StartRuntime()
	died := a.WaitEvent(pleg.ContainerDied, id)
	a.Converge()
	converged := time.Since(back)
	t.Eventually(5*time.Minute, "the agent returns to the stream", func() error {
		stats, err := a.Stats(t.ctx)
		if err == nil && stats.State != n.open().String() {
			err = fmt.Errorf("the state is %s", stats.State)
		}
		return err
	})
	t.Figure("away", "%v", gone)
	t.Figure("failed connections", "%d", attempts)
	t.Figure("back→ContainerDied", "%dms", died.At.Sub(back).Milliseconds())
	t.Figure("back→converged", "%dms", converged.Milliseconds())
	t.Figure("back→connected", "%.1fs", time.Since(back).Seconds())
	t.waits(a)
}
