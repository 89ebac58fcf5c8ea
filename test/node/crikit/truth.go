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
// without the times and addresses on which two correct observers may differ. It reads containers
// that have not exited from the lists alone. Pods that come or go during the read may be
// incomplete.
func (c *Client) Truth(ctx context.Context) ([]bench.Pod, error) {
	selector := map[string]string{LabelPodNamespace: c.Namespace}
	sandboxes, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector},
	})
	if err != nil {
		return nil, fmt.Errorf("crikit: list sandboxes: %w", err)
	}
	containers, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: selector},
	})
	if err != nil {
		return nil, fmt.Errorf("crikit: list containers: %w", err)
	}
	pods := map[string][]bench.Item{}
	for _, s := range sandboxes.Items {
		uid := s.GetMetadata().GetUid()
		pods[uid] = append(pods[uid], bench.Item{ID: s.Id, Sandbox: true, State: load.StateOfSandbox(s.State)})
	}
	for _, item := range containers.Containers {
		entry := bench.Item{ID: item.Id, Name: item.GetMetadata().GetName(), State: load.StateOf(item.State)}
		if item.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			answer, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.Id})
			if Gone(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("crikit: status of container %s: %w", item.Id, err)
			}
			entry.ExitCode, entry.Reason = answer.Status.ExitCode, answer.Status.Reason
		}
		uid := item.Labels[LabelPodUID]
		pods[uid] = append(pods[uid], entry)
	}
	var truth []bench.Pod
	for uid, items := range pods {
		truth = append(truth, bench.Pod{UID: uid, Items: items})
	}
	return truth, nil
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
