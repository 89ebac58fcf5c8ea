// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// stalled stops the agent's process, and then only its consumer, while another client makes
// and removes pods. A stopped process stops this runtime: the test measures the stop and its end.
// An idle consumer must cost the runtime nothing.
func stalled(t *T) {
	// Straight to the runtime: the proxy would take up part of the stall.
	a := t.Connect(withoutWorkers, func(c *worker.Config) { c.Endpoint, c.Capacity = t.Endpoint, 16 })
	l := t.StartLoad(4, 3, 100*time.Millisecond)
	l.undisturbed("agent reads", t.Seconds(10, 4))

	// The consumer stops reading: Watch is full after 16 events.
	must[bool](a, "Consume", false)
	before := a.Stats()
	l.undisturbed("Watch not read", t.Seconds(30, 8))
	a.Until("Watch of size 16 is full", func(now worker.Progress) bool { return now.Owed > before.Owed })
	t.Figure("events meanwhile", "%d", a.Stats().Claims-before.Claims)
	if health := a.Stats().Health; health != "" {
		t.Errorf("a Watch that is not read makes the agent unhealthy: %s", health)
	}
	must[bool](a, "Consume", true)
	a.Until("the debt is paid", func(now worker.Progress) bool { return now.OwedPods == 0 })

	// The process stops: only the kernel's and grpc's buffers take events now.
	reading := l.Stats()
	stop := time.Now()
	a.Signal(syscall.SIGSTOP)
	most := settle
	if t.Traits.StalledSubscriber != runtimes.Blocks {
		most = t.Seconds(30, 10)
	}
	idle := l.stopped(most)
	l.took("agent stopped", reading)
	if idle > quiet {
		t.Figure("stopped→runtime hangs", "%.1fs", (time.Since(stop) - idle).Seconds())
	} else {
		t.Figure("stopped→runtime hangs", "not within %v", most)
		if t.Traits.StalledSubscriber == runtimes.Blocks {
			t.Errorf(
				"the runtime did not hang on a subscriber that does not read for %v: its trait is no longer true",
				most,
			)
		}
	}
	t.Sleep(t.Seconds(30, 5) - time.Since(stop))
	a.Signal(syscall.SIGCONT)
	t.Figure("continued→runtime goes on", "%dms", l.progressed("agent continued").Milliseconds())
	l.Paused(func() {}) // calls hung before the end of the stop are over
	l.undisturbed("agent reads again", t.Seconds(10, 4))

	// Stopped again, and killed: the dropped stream frees the runtime.
	a.Signal(syscall.SIGSTOP)
	l.stopped(most)
	a.Kill()
	t.Figure("killed→runtime goes on", "%dms", l.progressed("agent killed").Milliseconds())
	l.Stop()

	again := t.NewAgent()
	again.Converge()
	again.WaitEvent(pleg.PhaseExited, t.Container(t.Pod("after"), "after", "exit", "4"))
	again.Converge()
}

// clients runs two agents and a reader with crictl's questions, over and over, at the same time.
func clients(t *T) {
	agents := []*Agent{t.NewAgent(), t.NewAgent()}
	for _, a := range agents {
		a.WaitConnected()
	}
	ctx, cancel := context.WithCancel(t.ctx)
	var readers sync.WaitGroup
	var reads atomic.Int64
	readers.Go(func() {
		for ctx.Err() == nil {
			if err := t.readAll(ctx); err == nil {
				reads.Add(1)
			} else if ctx.Err() == nil {
				t.Errorf("the reader: %v", err)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); readers.Wait() })
	l := t.StartLoad(4, 3, 500*time.Millisecond)
	t.Sleep(t.Seconds(30, 10))
	l.Stop()
	cancel()
	readers.Wait()
	for _, a := range agents {
		a.Converge()
	}
	t.Eventually("every pod can be removed", func() error { return t.RemoveAll(t.ctx) })
	var told []map[string]end
	for _, a := range agents {
		a.Empty()
		told = append(told, ends(a.Events()))
		if !t.Traits.SharedStream { // there each agent hears a part of the events, and finds the rest
			a.noneMissed(a.Stats().Missed, ", "+a.name)
		}
	}
	both, one := compareEnds(t, told[0], told[1])
	t.Figure("changes", "%d", l.Stats().Changes)
	t.Figure("reads of everything", "%d", reads.Load())
	t.Figure("IDs told to both", "%d", both)
	t.Figure("to one", "%d", one)
}

// An end is the delivered end of an ID, and how long it was known before.
type end struct {
	told  string
	lived time.Duration
}

// ends is every ID with its delivered end. Started may differ between agents: an agent that learns
// of start and end at once delivers the end only.
func ends(events []bench.Delivery) map[string]end {
	told := map[string]end{}
	first := map[string]int64{}
	for _, e := range events {
		if _, ok := first[e.ID]; !ok {
			first[e.ID] = e.At
		}
		if e.State() == pleg.PhaseExited || e.State() == pleg.PhaseRemoved {
			told[e.ID] = end{told[e.ID].told + e.State().String() + " ", time.Duration(e.At - first[e.ID])}
		}
	}
	return told
}

// compareEnds demands the same ends from two agents. IDs gone before a read could confirm them may
// be missing: nobody could have acted on them.
func compareEnds(t *T, a, b map[string]end) (both, one int) {
	for _, pair := range [][2]map[string]end{{a, b}, {b, a}} {
		for id, mine := range pair[0] {
			theirs, ok := pair[1][id]
			switch {
			case ok && theirs.told != mine.told:
				t.Errorf("%s: one agent told %s, the other %s", id, mine.told, theirs.told)
			case ok:
				both++
			case mine.lived > newerLimit:
				t.Errorf(
					"%s: one agent told %s, after it had known it for %v, the other nothing",
					id,
					mine.told,
					mine.lived,
				)
			default:
				one++
			}
		}
	}
	return both / 2, one
}

// readAll makes every call of crictl's version, info, pods, ps, inspect, stats and statsp.
func (t *T) readAll(ctx context.Context) error {
	if _, err := t.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		return err
	}
	if _, err := t.Status(ctx, &runtimeapi.StatusRequest{Verbose: true}); err != nil {
		return err
	}
	sandboxes, err := t.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, s := range sandboxes.Items {
		// An item gone meanwhile is no error.
		_, _ = t.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id, Verbose: true})
	}
	containers, err := t.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	for _, c := range containers.Containers {
		_, _ = t.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id, Verbose: true})
	}
	_, _ = t.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if !t.Traits.SandboxStatsKill {
		_, _ = t.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	}
	return nil
}
