// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// statuses runs a generator in the suite's own process, for scenarios about the whole of a status,
// until the scenario ends.
func (t *T) statuses() *cache.Cache[cri.PodStatus] {
	client := testkit.Must(cri.New(cri.Config{Endpoint: t.Endpoint}))(t)
	statuses := cache.New(cri.EmptyStatus)
	generator := testkit.Must(pleg.New(pleg.Config[cri.PodStatus]{
		Source: client,
		Stream: client,
		Cache:  statuses,
		Merge:  cri.KeepIPs,
		Same:   cri.SameStatus,
	}))(t)
	ctx, cancel := context.WithCancel(t.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = generator.Run(ctx) })
	running.Go(func() {
		for range generator.Watch() {
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = client.Close()
	})
	return statuses
}

// content changes what a status holds beside its phases, in pods of few and of many containers, and
// wants each answer of GetNewerThan to show what the runtime shows: another memory limit, and the
// reason of an end, which some runtimes learn after the end.
func content(t *T) {
	held := t.statuses()
	for _, others := range []int{0, t.Size(20, 9)} {
		pod := t.Pod(fmt.Sprintf("resize%d", others))
		id := t.Made(pod, crikit.Spec{Name: "resized", Args: []string{"sleep", "1h"}, Memory: 64 << 20})
		for i := range others {
			t.Container(pod, fmt.Sprintf("other%d", i), "sleep", "1h")
		}
		var waited []time.Duration
		for round := range t.Size(20, 5) {
			limit := int64(96+16*(round%5)) << 20
			_, err := t.UpdateContainerResources(t.ctx, &runtimeapi.UpdateContainerResourcesRequest{
				ContainerId: id,
				Linux:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit},
			})
			t.Check(err)
			want := testkit.Must(t.ContainerStatus(t.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t)
			if said := want.GetStatus().GetResources().GetLinux().GetMemoryLimitInBytes(); said != limit {
				t.Fatalf("the runtime says that the limit is %d after it was set to %d", said, limit)
			}
			asked := time.Now()
			status := testkit.Must(held.GetNewerThan(t.ctx, cache.UID(pod.UID), asked))(t)
			waited = append(waited, time.Since(asked))
			if got := limitOf(status, id); got != limit {
				t.Errorf(
					"the limit of a container beside %d others is %d in the runtime, and %d in the answer",
					others,
					limit,
					got,
				)
			}
		}
		t.Figure(fmt.Sprintf("GetNewerThan beside %d", others), "%s", quantiles(waited))
	}
	pod := t.Pod("oom")
	id := t.Made(pod, crikit.Spec{Name: "eats", Args: []string{"eat", "256"}, Memory: 32 << 20})
	reason := t.Exited(id).Reason
	t.Eventually("the cache shows the reason that the runtime shows", func() error {
		shown := testkit.Must(t.ContainerStatus(t.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t)
		reason = shown.GetStatus().GetReason()
		status, err := held.Get(cache.UID(pod.UID))
		if err != nil {
			return err
		}
		if got := find(status, id); got == nil || got.Reason != reason || got.ExitCode != shown.GetStatus().GetExitCode() {
			return fmt.Errorf("the runtime says %q, and the cache %v", reason, got)
		}
		return nil
	})
	t.Figure("OOM reason", "%s", reason)
}

// find returns the container with the ID, nil if the status has none.
func find(status *cri.PodStatus, id string) *cri.ContainerStatus {
	for _, c := range status.Containers() {
		if c.ID == id {
			return &c
		}
	}
	return nil
}

// limitOf returns the memory limit of the container with the ID, 0 if the status shows none.
func limitOf(status *cri.PodStatus, id string) int64 {
	c := find(status, id)
	if c == nil || c.Resources == nil {
		return 0
	}
	return c.Resources.MemoryLimit
}
