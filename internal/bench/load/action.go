// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// action is a step of a load with a pod.
type action uint8

const (
	// replaceContainer stops, removes, creates and starts the container of a slot: 4 changes.
	replaceContainer action = iota
	// runJob creates and starts a short container, waits for its natural end, and removes the
	// container: 4 changes.
	runJob
	// replacePod stops and removes a pod and makes another pod in its place.
	replacePod
	// repair replaces a broken pod, and does not count towards the rate.
	repair
)

// changes is how many state changes an action makes.
func (d *Driver) changes(a action) int {
	switch a {
	case replaceContainer, runJob:
		return 4
	case replacePod:
		return 3 + 4*d.config.Containers
	}
	return 0
}

// draw chooses an action. The caller holds the mutex.
func (d *Driver) draw() action {
	if d.config.JobsOnly {
		return runJob
	}
	switch n := d.rand.IntN(100); {
	case n < 45 && d.config.Containers > 0:
		return replaceContainer
	case n < 85:
		return runJob
	}
	return replacePod
}

// do performs an action on a pod claimed for the action.
func (d *Driver) do(ctx context.Context, a action, p *pod, slot int, life time.Duration) error {
	switch a {
	case replaceContainer:
		return d.replaceSlot(ctx, p, slot)
	case runJob:
		return d.job(ctx, p, life)
	}
	if err := d.removePod(ctx, p); err != nil {
		return err
	}
	return d.makePod(ctx, p)
}

func (d *Driver) replaceSlot(ctx context.Context, p *pod, slot int) error {
	if id := p.slots[slot]; id != "" {
		if _, err := invoke(ctx, d, p, "StopContainer", d.client.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			return err
		}
		d.fact(ctx, p, id, false, bench.Exited)
		if err := d.removeContainer(ctx, p, id); err != nil {
			return err
		}
		p.slots[slot] = ""
	}
	return d.fillSlot(ctx, p, slot)
}

// job runs a container to its natural end.
func (d *Driver) job(ctx context.Context, p *pod, life time.Duration) error {
	attempt := d.nextAttempt(p)
	id, err := d.startContainer(ctx, p, fmt.Sprintf("job-%d", attempt), 0, life, func(string) {})
	if err != nil {
		return err
	}
	if err := bench.Sleep(ctx, life); err != nil {
		return err
	}
	if err := d.awaitExit(ctx, id); err != nil {
		return fmt.Errorf("load: job %s of pod %s: %w", id, p.uid, err)
	}
	d.fact(ctx, p, id, false, bench.Exited)
	return d.removeContainer(ctx, p, id)
}

// awaitExit asks with growing pauses until a container has ended.
func (d *Driver) awaitExit(ctx context.Context, id string) error {
	pause := 2 * time.Millisecond
	for begun := time.Now(); ; {
		var state runtimeapi.ContainerState
		err := d.ask(ctx, func(ctx context.Context) error {
			answer, err := d.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			state = answer.GetStatus().GetState()
			return err
		})
		if err == nil && state == runtimeapi.ContainerState_CONTAINER_EXITED {
			return nil
		}
		if gone(err) || ctx.Err() != nil {
			return err
		}
		if time.Since(begun) > d.config.CallTimeout {
			return fmt.Errorf("it has not ended after %v: %w", d.config.CallTimeout, err)
		}
		if err := bench.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}
