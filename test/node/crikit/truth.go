// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// Truth reads the runtime's state of the client's namespace: the expected content of a quiet cache,
// bare.
func (c *Client) Truth(ctx context.Context) ([]bench.Pod, error) {
	pods, err := load.Read(ctx, c.Conn, load.LabelPodNamespace, c.Namespace)
	for i := range pods {
		Bare(&pods[i])
	}
	return pods, err
}

// Bare removes the times, the addresses and the results of running containers, in which two correct
// observers may differ.
func Bare(pod *bench.Pod) {
	pod.IPs = nil
	for i, item := range pod.Items {
		item.StartedAt, item.FinishedAt = 0, 0
		if item.State != bench.Exited {
			item.ExitCode, item.Reason = 0, ""
		}
		pod.Items[i] = item
	}
}

// WaitState polls until the container is in the state, and returns its status.
func (c *Client) WaitState(ctx context.Context, id string, state runtimeapi.ContainerState) (*runtimeapi.ContainerStatus, error) {
	for {
		answer, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err == nil && answer.Status.State == state {
			return answer.Status, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("crikit: container %s is %v, want %v (last error: %v): %w",
				id, answer.GetStatus().GetState(), state, err, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
