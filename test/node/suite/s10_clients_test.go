// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// clients runs two agents and a reader with crictl's questions, over and over, at the same time.
func clients(t *T) {
	n := t.NewNode()
	agents := []*Agent{n.NewAgent(), n.NewAgent()}
	for _, a := range agents {
		a.WaitConnected()
	}
	ctx, cancel := context.WithCancel(t.ctx)
	var readers sync.WaitGroup
	var reads atomic.Int64
	readers.Go(func() {
		for ctx.Err() == nil {
			if err := n.readAll(ctx); err == nil {
				reads.Add(1)
			} else if ctx.Err() == nil {
				t.Errorf("the reader: %v", err)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	n.t.Cleanup(func() { cancel(); readers.Wait() })
	l := n.StartLoad(4, 3, 500*time.Millisecond)
	t.Sleep(time.Duration(t.Size(30, 10)) * time.Second)
	l.Stop()
	cancel()
	readers.Wait()
	for _, a := range agents {
		a.Converge()
	}
	t.Eventually(settle, "every pod can be removed", func() error { return n.RemoveAll(t.ctx) })
	var finals []map[string]end
	for _, a := range agents {
		a.Converge()
		if held := a.Cache(); len(held) != 0 {
			t.Errorf("%s: every pod is gone, and the cache holds %d", a.name, len(held))
		}
		finals = append(finals, ends(a.Events()))
	}
	both, one := compareEnds(t, finals[0], finals[1])
	t.Figure("changes", "%d", l.Stats().Changes)
	t.Figure("reads of everything", "%d", reads.Load())
	t.Figure("IDs told to both", "%d", both)
	t.Figure("to one", "%d", one)
	for i, a := range agents {
		g := a.Stats()
		t.Figure(fmt.Sprintf("agent %d", i+1), "claims %d, missed %d", g.Claims, g.Missed)
		if !n.Traits.SharedStream { // there each agent hears a part of the events, and finds the rest
			t.noneMissed(a, g.Missed, "")
		}
	}
	var all []bench.Delivery
	for _, a := range agents {
		all = append(all, a.Events()...)
	}
	t.latencies(all)
	t.Figure("GetNewerThan", "%s", quantiles(agents[0].Waits()))
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
		if e.State == bench.Exited || e.State == bench.Removed {
			before := told[e.ID]
			told[e.ID] = end{before.told + string(e.State) + " ", time.Duration(e.At - first[e.ID])}
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
				t.Errorf("%s: one agent told %s, after it had known it for %v, the other nothing", id, mine.told, mine.lived)
			default:
				one++
			}
		}
	}
	return both / 2, one
}

// readAll makes every call of crictl's version, info, pods, ps, inspect, stats and statsp.
func (n *Node) readAll(ctx context.Context) error {
	if _, err := n.RuntimeServiceClient.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		return err
	}
	if _, err := n.RuntimeServiceClient.Status(ctx, &runtimeapi.StatusRequest{Verbose: true}); err != nil {
		return err
	}
	sandboxes, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, s := range sandboxes.Items {
		// An item gone meanwhile is no error.
		_, _ = n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id, Verbose: true})
	}
	containers, err := n.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	for _, c := range containers.Containers {
		_, _ = n.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id, Verbose: true})
	}
	_, _ = n.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if !n.Traits.SandboxStatsKill {
		_, _ = n.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	}
	return nil
}
