// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// lifecycle takes pods through every change of a container, and compares the events and the cache
// with each.
func lifecycle(t *T) {
	a := t.Connect()
	for round := range t.Size(10, 3) {
		oneLife(t, a, fmt.Sprintf("life%d", round))
	}
	a.Empty()
}

func oneLife(t *T, a *Agent, name string) {
	pod := t.Pod(name)
	a.WaitEvent(pleg.PhaseRunning, pod.SandboxID)

	// expect waits for the end of a container and checks the cache.
	expect := func(id string, codes ...int32) {
		code := t.Exited(id).ExitCode
		if !slices.Contains(codes, code) {
			t.Errorf("the runtime says that %s exited with %d, want %d", id, code, codes)
		}
		a.WaitEvent(pleg.PhaseExited, id)
		held := bench.Find(a.Cache(), pod.UID, id)
		if held.State != pleg.PhaseExited || held.ExitCode != code {
			t.Errorf("after ContainerDied of %s the cache says %v, want exit code %d", id, held, code)
		}
	}
	zero := t.Container(pod, "zero", "exit", "0")
	expect(zero, 0)
	three := t.Container(pod, "three", "exit", "3")
	expect(three, 3)

	killed := t.Container(pod, "killed", "sleep", "1h")
	a.WaitEvent(pleg.PhaseRunning, killed)
	t.Check(t.Client.Stop(t.ctx, killed, 0))
	expect(killed, t.Traits.StopNowCodes...)

	oom := t.Made(pod, crikit.Spec{Name: "oom", Args: []string{"eat", "256"}, Memory: 32 << 20})
	expect(oom, 137)

	// A restart is a new container of the same name beside the old container.
	again := t.Made(pod, crikit.Spec{Name: "three", Attempt: 1, Args: []string{"sleep", "1h"}})
	a.WaitEvent(pleg.PhaseRunning, again)
	a.Converge()
	t.Check(t.Remove(t.ctx, three))
	a.WaitEvent(pleg.PhaseRemoved, three)
	a.Converge()

	t.Check(t.StopPod(t.ctx, pod.SandboxID))
	a.WaitEvent(pleg.PhaseExited, again)
	a.WaitEvent(pleg.PhaseExited, pod.SandboxID)
	a.Converge()
	t.Check(t.RemovePod(t.ctx, pod.SandboxID))
	for _, id := range []string{zero, killed, oom, again, pod.SandboxID} {
		a.WaitEvent(pleg.PhaseRemoved, id)
	}
	a.Converge()
	a.Whole(zero, three, killed, oom, again, pod.SandboxID)
}

// stress creates containers at the full speed of the machine, in a single pod and in many, lets
// them run to completion and removes them.
func stress(t *T) {
	a := t.Connect(withoutWorkers) // they would compete with the runtime for the machine
	raw := t.Record()

	began := time.Now()
	pods := []*crikit.Pod{t.Pod("one")}
	ids := t.Burst(pods, t.Size(200, 40), 8, "exit", "0")
	for p := range t.Size(40, 10) {
		pods = append(pods, t.Pod(fmt.Sprintf("many%d", p)))
	}
	for some := range slices.Chunk(pods[1:], 8) {
		ids = append(ids, t.Burst(some, 10, 1, "exit", "0")...)
	}
	t.Exited(ids...)
	t.Figure("rate", "%.0f/s", float64(len(ids))/time.Since(began).Seconds())
	full := a.Converge()
	t.Clear(ids, pods)
	empty := a.Converge()

	// CREATED, STARTED, STOPPED, DELETED of each container, and the runtime's events of a sandbox.
	want := 0
	if t.Traits.Events {
		want = 4*len(ids) + t.Traits.SandboxEvents*len(pods)
	}
	t.Eventually("every event of the runtime has reached the agent", func() error {
		if got := a.Metrics()[worker.MetricLatency+"_count"]; int(got) != want {
			return fmt.Errorf("%s_count is %v, want %d", worker.MetricLatency, got, want)
		}
		return nil
	})
	t.Eventually("every event of the runtime has reached another subscriber", func() error {
		if got, _ := raw.soFar(); got != want {
			return fmt.Errorf("%d have, want %d", got, want)
		}
		return nil
	})
	a.Whole(ids...)
	metrics := a.Metrics()
	a.noneMissed(int(metrics[worker.MetricMissed]), "")
	a.Empty()
	t.Figure("containers", "%d", len(ids))
	t.Figure("CRI events", "%d", want)
	for _, le := range []string{"0.001", "0.01", "0.1", "1"} {
		t.Figure(
			"≤"+le+"s",
			"%.1f%%",
			100*metrics[worker.MetricLatency+`_bucket{le="`+le+`"}`]/float64(max(want, 1)),
		)
	}
	t.Figure("relists", "%d", a.Stats().Relists)
	t.Figure("converged", "%dms+%dms", full.Milliseconds(), empty.Milliseconds())
}

// static makes a pod's sandbox anew under the same UID, like the kubelet with static pods, at once
// and during the deletion of the old sandbox. The old sandbox's DELETED must not touch the new
// sandbox, and a pod worker must see the new sandbox at once.
func static(t *T) {
	a := t.Connect()
	pod := t.Pod("static")
	runs := t.Container(pod, "c", "sleep", "1h")
	a.WaitEvent(pleg.PhaseRunning, runs)

	rounds := t.Size(20, 8)
	var gone []string
	for round := 1; round <= rounds; round++ {
		var removal sync.WaitGroup
		var failed error
		old := pod
		if round%2 == 0 {
			// Stopped first, deleted beside the start of the new one.
			t.Check(t.StopPod(t.ctx, old.SandboxID))
			removal.Go(func() { failed = t.RemovePod(t.ctx, old.SandboxID) })
		}
		var err error
		pod, err = t.RunPod(t.ctx, old.UID, old.Name, uint32(round))
		t.Check(err)
		a.Newer(pod.UID, pod.SandboxID)
		if round%2 == 1 {
			// Both are there at once; the old sandbox is deleted beside a start.
			removal.Go(func() { failed = t.Delete(t.ctx, old.SandboxID) })
		}
		gone = append(gone, old.SandboxID, runs)
		runs = t.Made(pod, crikit.Spec{Name: "c", Attempt: uint32(round), Args: []string{"sleep", "1h"}})
		a.Newer(pod.UID, runs)
		removal.Wait()
		t.Check(failed)
		a.WaitEvent(pleg.PhaseRunning, runs)
		a.WaitEvent(pleg.PhaseRemoved, old.SandboxID)
		a.Converge()
	}
	a.Whole(gone...)
	for _, id := range []string{pod.SandboxID, runs} {
		if count := types(a.Events(), id); count[pleg.PhaseExited]+count[pleg.PhaseRemoved] > 0 {
			t.Errorf("%s lives, and the agent told %v", id, count)
		}
	}
	t.Check(t.Delete(t.ctx, pod.SandboxID))
	a.Converge()
	t.Figure("sandboxes of one pod", "%d", rounds+1)
}

// clock steps the agent's wall clock back and forward by an hour while pods live and die. Go reads
// the machine's clock past libc, so the agent has a knob; the machine's own clock is never touched.
func clock(t *T) {
	a := t.Connect()
	l := t.StartLoad(2, 3, 400*time.Millisecond)
	before := a.Stats()
	for i, step := range []time.Duration{-time.Hour, time.Hour, 0, -time.Hour, 0} {
		must[bool](a, "StepClock", step)
		oneLife(t, a, fmt.Sprintf("step%d", i))
		// An unchanged pod must not be frozen: a question is answered.
		l.Paused(func() {
			pod := t.Pod(fmt.Sprintf("still%d", i))
			a.Newer(pod.UID, t.Container(pod, "c", "sleep", "1h"))
			a.Converge()
			t.Check(t.Delete(t.ctx, pod.SandboxID))
		})
	}
	l.Stop()
	a.Converge()
	after := a.Stats()
	// By the machine's clock; the metric's is stepped.
	late := slices.ContainsFunc(
		a.Events(),
		func(e bench.Delivery) bool { return e.Stamp != 0 && e.At-e.Stamp > int64(time.Second) },
	)
	if after.Missed != before.Missed && !late || after.Connects != before.Connects ||
		after.RelistErrors != before.RelistErrors {
		t.Errorf(
			"steps of the wall clock changed more than the latency metric: before %+v, after %+v",
			before,
			after,
		)
	}
	if sum := a.Metrics()[worker.MetricLatency+"_sum"]; sum < 0 {
		t.Errorf("%s_sum is %v: a latency was below zero", worker.MetricLatency, sum)
	}
	t.Figure("changes", "%d", l.Stats().Changes)
}
