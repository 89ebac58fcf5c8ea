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
)

// removeTimeout bounds the removal of one pod. A runtime that was just put under stress takes its time to kill hundreds of containers.
const removeTimeout = 90 * time.Second

// RemoveRun stops and removes every pod that carries the label of the run, and touches nothing else. It tries again while some are left and ctx
// lasts, and returns why the last ones could not be removed.
func RemoveRun(ctx context.Context, conn grpc.ClientConnInterface, runID string) error {
	client := runtimeapi.NewRuntimeServiceClient(conn)
	const tries = 5
	for try := 1; ; try++ {
		err := removeOnce(ctx, client, runID)
		if err == nil || try == tries || ctx.Err() != nil {
			return err
		}
		if sleep(ctx, time.Duration(try)*200*time.Millisecond) != nil {
			return err
		}
	}
}

func removeOnce(ctx context.Context, client runtimeapi.RuntimeServiceClient, runID string) error {
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{RunLabel: runID}},
	}, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return fmt.Errorf("load: list the pods of run %s: %w", runID, err)
	}
	var (
		mu    sync.Mutex // owns errs
		errs  []error
		group sync.WaitGroup
		limit = make(chan struct{}, defaultParallel)
	)
	for _, s := range list.GetItems() {
		if s.GetLabels()[RunLabel] != runID {
			continue // a runtime that ignores filters must not cost others their pods
		}
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
	return errors.Join(errs...)
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
