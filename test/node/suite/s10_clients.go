// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/agent"
	"github.com/evented-pleg/evented-pleg/test/node/report"
)

// clients runs two agents and a reader that asks what crictl asks, over and
// over, at the same time.
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
	var finals []map[string]string
	for _, a := range agents {
		a.Converge()
		if held := a.MustCache(); len(held) != 0 {
			t.Errorf("%s: every pod is gone, and the cache holds %d", a.name, len(held))
		}
		finals = append(finals, ends(a.MustEvents()))
	}
	// Started may be told by one and not by the other: an agent that learns of a
	// start and an end at once tells the end only.
	if len(finals[0]) != len(finals[1]) {
		t.Errorf("one agent told the end of %d IDs, the other of %d", len(finals[0]), len(finals[1]))
	}
	for id, told := range finals[0] {
		if finals[1][id] != told {
			t.Errorf("%s: one agent told %s, the other %s", id, told, finals[1][id])
		}
	}
	t.Figure("containers", "%d", l.made.Load())
	t.Figure("reads of everything", "%d", reads.Load())
	t.Figure("IDs told to both", "%d", len(finals[0]))
	for i, a := range agents {
		g := a.MustStats().Generator
		t.Figure(fmt.Sprintf("agent %d", i+1), "claims %d, missed %d", g.Claims, g.Missed)
		t.noneMissed(a, g.Missed, "")
	}
	var all []agent.Event
	for _, a := range agents {
		all = append(all, a.MustEvents()...)
	}
	t.latencies(all)
	w := agents[0].MustStats().Workers
	t.Figure("GetNewerThan", "%s/%s/%sms(n=%d)", report.Millis(w.WaitP50), report.Millis(w.WaitP99), report.Millis(w.WaitMax), w.Checked)
}

// ends is every ID with the Died and Removed that were told of it.
func ends(events []agent.Event) map[string]string {
	told := map[string]string{}
	for _, e := range events {
		if e.Type == "ContainerDied" || e.Type == "ContainerRemoved" {
			told[e.ID] += e.Type + " "
		}
	}
	return told
}

// readAll asks everything that crictl's version, info, pods, ps, inspect, stats
// and statsp ask.
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
		// What has gone meanwhile is no error.
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
	_, _ = n.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	return nil
}
