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

// clock steps the agent's wall clock back and forward by an hour while pods live
// and die. Go reads the machine's clock past libc, so the agent has a knob; the
// machine's own clock is never touched.
func clock(t *T) {
	n := t.NewNode()
	a := n.NewAgent()
	a.WaitConnected()
	l := n.StartLoad(2, 3, 400*time.Millisecond)
	before := a.Stats()
	for i, step := range []time.Duration{-time.Hour, time.Hour, 0, -time.Hour, 0} {
		must[bool](a, "StepClock", step)
		oneLife(t, n, a, fmt.Sprintf("step%d", i))
		// An unchanged pod must not be frozen: a question is answered.
		l.Paused(func() {
			pod := n.Pod(fmt.Sprintf("still%d", i))
			id := n.Container(pod, "c", "sleep", "1h")
			newer := a.Newer(pod.UID)
			if bench.Find(newer, pod.UID, id).State != bench.Running {
				t.Errorf("with the clock at %v, asked after the container ran, the cache answers %v", step, newer)
			}
			a.Converge()
			t.Check(n.Delete(t.ctx, pod.SandboxID))
		})
	}
	l.Stop()
	a.Converge()
	after := a.Stats()
	// By the machine's clock; the metric's is stepped.
	late := slices.ContainsFunc(a.Events(), func(e bench.Delivery) bool { return e.Stamp != 0 && e.At-e.Stamp > int64(time.Second) })
	if after.Missed != before.Missed && !late || after.Connects != before.Connects || after.RelistErrors != before.RelistErrors {
		t.Errorf("steps of the wall clock changed more than the latency metric: before %+v, after %+v", before, after)
	}
	metrics := a.Metrics()
	if metrics[worker.MetricLatency+"_sum"] < 0 {
		t.Errorf("%s_sum is %v: a latency was below zero", worker.MetricLatency, metrics[worker.MetricLatency+"_sum"])
	}
	t.Figure("steps", "-1h, +1h, 0, -1h, 0")
	t.Figure("changes", "%d", l.Stats().Changes)
	t.Figure("missed", "%d", after.Missed)
	t.latencies(a.Events())
	t.waits(a)
}
