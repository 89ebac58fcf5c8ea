// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// removeTimeout bounds the removal of a pod. A runtime under stress takes its time to kill hundreds
// of containers.
const removeTimeout = 90 * time.Second

// settleFor is how long an abandoned call may still take effect.
const settleFor = 500 * time.Millisecond

// RemoveRun stops and removes every pod with the run's label, and nothing else. It goes on until
// the runtime shows none, also a moment later, because an abandoned call may still take effect.
// After some failures it returns why the last pods could not be removed.
func RemoveRun(ctx context.Context, conn grpc.ClientConnInterface, runID string) error {
	client := runtimeapi.NewRuntimeServiceClient(conn)
	const tries = 5
	for try, empty := 1, 0; ; {
		n, err := removeOnce(ctx, client, runID)
		wait := settleFor
		switch {
		case err != nil && (try == tries || ctx.Err() != nil):
			return err
		case err != nil:
			wait = time.Duration(try) * 200 * time.Millisecond
			try++
			empty = 0
		case n > 0:
			empty = 0
		default:
			if empty++; empty == 2 {
				return nil
			}
		}
		if err := errors.Join(bench.Sleep(ctx, wait), err); ctx.Err() != nil {
			return err
		}
	}
}

// removeOnce removes the pods shown by the runtime now, and returns their number.
func removeOnce(ctx context.Context, client runtimeapi.RuntimeServiceClient, runID string) (int, error) {
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{RunLabel: runID}},
	}, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return 0, fmt.Errorf("load: list the pods of run %s: %w", runID, err)
	}
	var (
		mu    sync.Mutex // owns errs
		errs  []error
		group sync.WaitGroup
		limit = make(chan struct{}, defaultParallel)
	)
	found := 0
	for _, s := range list.GetItems() {
		if s.GetLabels()[RunLabel] != runID {
			continue // a runtime may ignore filters, and must not cost others their pods
		}
		found++
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			if err := removeSandbox(ctx, client, s.GetId()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	n, err := removeOrphans(ctx, client, runID)
	return found + n, errors.Join(append(errs, err)...)
}

// removeOrphans removes the containers of a run whose sandbox the runtime has lost, as after a full
// disk, and returns how many there were.
func removeOrphans(ctx context.Context, client runtimeapi.RuntimeServiceClient, runID string) (int, error) {
	list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{RunLabel: runID}},
	}, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return 0, fmt.Errorf("load: list the containers of run %s: %w", runID, err)
	}
	found := 0
	var errs []error
	for _, c := range list.GetContainers() {
		if c.GetLabels()[RunLabel] != runID {
			continue
		}
		found++
		ctx, cancel := context.WithTimeout(ctx, removeTimeout)
		if _, err := client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.GetId()}); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("load: remove container %s: %w", c.GetId(), err))
		}
		cancel()
	}
	return found, errors.Join(errs...)
}

func removeSandbox(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if _, err := client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil && !gone(err) {
		return fmt.Errorf("load: stop sandbox %s: %w", id, err)
	}
	if _, err := client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil && !gone(err) {
		return fmt.Errorf("load: remove sandbox %s: %w", id, err)
	}
	return nil
}
