// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// maxMessage lets a runtime without streaming lists tell of 100,000 containers in one message.
const maxMessage = 1 << 30

// Read reads every pod of the runtime whose sandboxes and containers carry the label with that value, all of them for an empty label, with the
// statuses of the containers. What goes away between two calls is left out.
func Read(ctx context.Context, conn grpc.ClientConnInterface, label, value string) ([]bench.Pod, error) {
	client := runtimeapi.NewRuntimeServiceClient(conn)
	var selector map[string]string
	if label != "" {
		selector = map[string]string{label: value}
	}
	limit := grpc.MaxCallRecvMsgSize(maxMessage)
	sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector}}, limit)
	if err != nil {
		return nil, fmt.Errorf("load: list the sandboxes: %w", err)
	}
	containers, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: selector}}, limit)
	if err != nil {
		return nil, fmt.Errorf("load: list the containers: %w", err)
	}

	r := reader{client: client, pods: make(map[string]*bench.Pod)}
	podOf := make(map[string]string)
	var tasks []func() error
	for _, s := range sandboxes.GetItems() {
		uid := s.GetMetadata().GetUid()
		podOf[s.GetId()] = uid
		state := StateOfSandbox(s.GetState())
		r.add(uid, bench.Item{ID: s.GetId(), Sandbox: true, State: state})
		if state == bench.Running {
			tasks = append(tasks, func() error { return r.readIPs(ctx, uid, s.GetId()) })
		}
	}
	for _, c := range containers.GetContainers() {
		uid, ok := podOf[c.GetPodSandboxId()]
		if !ok {
			uid = c.GetLabels()[labelPodUID]
		}
		tasks = append(tasks, func() error { return r.readContainer(ctx, uid, c.GetId()) })
	}
	if err := r.do(ctx, tasks); err != nil {
		return nil, err
	}
	pods := make([]bench.Pod, 0, len(r.pods))
	for _, p := range r.pods {
		pods = append(pods, *p)
	}
	return pods, nil
}

type reader struct {
	client runtimeapi.RuntimeServiceClient

	mu   sync.Mutex // owns pods and err
	pods map[string]*bench.Pod
	err  error
}

func (r *reader) add(uid string, items ...bench.Item) *bench.Pod {
	p := r.pods[uid]
	if p == nil {
		p = &bench.Pod{UID: uid}
		r.pods[uid] = p
	}
	p.Items = append(p.Items, items...)
	return p
}

// do runs the tasks, a bounded number at once, and returns the first error.
func (r *reader) do(ctx context.Context, tasks []func() error) error {
	work := make(chan func() error)
	var group sync.WaitGroup
	for range defaultParallel {
		group.Go(func() {
			for task := range work {
				if err := task(); err != nil {
					r.mu.Lock()
					if r.err == nil {
						r.err = err
					}
					r.mu.Unlock()
				}
			}
		})
	}
	for _, task := range tasks {
		if ctx.Err() != nil {
			break
		}
		work <- task
	}
	close(work)
	group.Wait()
	if r.err == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.err
}

func (r *reader) readIPs(ctx context.Context, uid, id string) error {
	answer, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load: status of sandbox %s: %w", id, err)
	}
	network := answer.GetStatus().GetNetwork()
	var ips []string
	if ip := network.GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, ip := range network.GetAdditionalIps() {
		ips = append(ips, ip.GetIp())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(uid).IPs = ips
	return nil
}

// StateOf says how far a container has come that a runtime shows so.
func StateOf(s runtimeapi.ContainerState) bench.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return bench.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return bench.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return bench.Exited
	}
	return bench.Unknown
}

// StateOfSandbox says the same of a sandbox.
func StateOfSandbox(s runtimeapi.PodSandboxState) bench.State {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return bench.Running
	}
	return bench.Exited
}

func (r *reader) readContainer(ctx context.Context, uid, id string) error {
	answer, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load: status of container %s: %w", id, err)
	}
	s := answer.GetStatus()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(uid, bench.Item{
		ID: id, State: StateOf(s.GetState()), Name: s.GetMetadata().GetName(),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), StartedAt: s.GetStartedAt(), FinishedAt: s.GetFinishedAt(),
	})
	return nil
}
