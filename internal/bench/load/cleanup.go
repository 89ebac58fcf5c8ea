// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// removeTimeout bounds the removal of a pod. A runtime under stress takes its time to kill hundreds
// of containers.
const removeTimeout = 90 * time.Second

// settleFor is how long an abandoned call may still take effect.
const settleFor = 500 * time.Millisecond

// A removal gives up when the runtime has answered nothing for silentFor; it is asked every
// askEvery.
const (
	silentFor = 30 * time.Second
	askEvery  = 5 * time.Second
)

// errSilent is why a removal has given up.
var errSilent = fmt.Errorf("the runtime has answered nothing for %v", silentFor)

// RemoveRun stops and removes every pod with the run's label and UID, and nothing else. It goes on
// until the runtime shows none, also a moment later, because an abandoned call may still take
// effect. After some failures it returns why the last pods could not be removed, and so it does
// when the runtime does not answer. The meter knows when this process does not run; nil: it runs.
func RemoveRun(ctx context.Context, conn grpc.ClientConnInterface, runID string, meter *standstill.Meter) error {
	ctx, stop := whileAnswered(ctx, conn, meter)
	defer stop()
	err := removeAll(ctx, conn, runID)
	if err != nil && context.Cause(ctx) == errSilent {
		return errSilent
	}
	return err
}

// whileAnswered returns a context that ends with errSilent. A removal may take longer than
// silentFor, and a busy runtime still says its version.
func whileAnswered(
	ctx context.Context,
	conn grpc.ClientConnInterface,
	meter *standstill.Meter,
) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	client := runtimeapi.NewRuntimeServiceClient(conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		silent := time.Duration(0)
		for ctx.Err() == nil {
			asked, done := meter.WithTimeout(ctx, askEvery)
			_, err := client.Version(asked, &runtimeapi.VersionRequest{})
			unanswered := err != nil && standstill.Expired(asked)
			done()
			if !unanswered { // a refusal fails the removal itself
				silent = 0
				_ = bench.Sleep(ctx, askEvery)
				continue
			}
			silent += askEvery
			if silent >= silentFor {
				cancel(errSilent)
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// removeAll is RemoveRun of a runtime that answers.
func removeAll(ctx context.Context, conn grpc.ClientConnInterface, runID string) error {
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
			empty++
			if empty == 2 {
				return nil
			}
		}
		if err := errors.Join(bench.Sleep(ctx, wait), err); ctx.Err() != nil {
			return err
		}
	}
}

// removeOnce removes what the runtime shows of the run now, and returns the number.
func removeOnce(
	ctx context.Context,
	client runtimeapi.RuntimeServiceClient,
	runID string,
) (found int, err error) {
	sandboxes, containers, err := list(ctx, client, RunLabel, runID)
	if err != nil {
		return 0, err
	}
	var tasks errgroup.Group
	tasks.SetLimit(defaultParallel)
	// A runtime may ignore filters, and others may have the label.
	remove := func(run string, f func() error) {
		if run == runID {
			found++
			tasks.Go(f)
		}
	}
	present := make(map[string]bool)
	for _, s := range sandboxes {
		present[s.GetId()] = true
		remove(runOfSandbox(s), func() error { return removeSandbox(ctx, client, s.GetId()) })
	}
	for _, c := range containers {
		if !present[c.GetPodSandboxId()] { // the runtime has lost the sandbox, as after a full disk
			remove(runOfContainer(c), func() error { return removeContainer(ctx, client, c.GetId()) })
		}
	}
	return found, tasks.Wait()
}

func removeContainer(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if _, err := client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil && !gone(err) {
		return fmt.Errorf("load: remove container %s: %w", id, err)
	}
	return nil
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
