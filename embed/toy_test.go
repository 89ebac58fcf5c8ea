// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// toy is a runtime of a sandbox. Other calls panic.
type toy struct {
	internalapi.RuntimeService

	mu         sync.Mutex
	containers map[string]runtimeapi.ContainerState
	calls      map[string]int
	events     chan *runtimeapi.ContainerEventResponse // nil: no stream yet
	made       int

	onStart  func() // in StartContainer, after the work
	onList   func(context.Context) error
	failNext error // of CreateContainer and RemoveContainer, after the work
}

func newToy() *toy {
	return &toy{containers: map[string]runtimeapi.ContainerState{}, calls: map[string]int{}}
}

func (r *toy) called(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[name]++
}

func (r *toy) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[name]
}

func (r *toy) set(id string, s runtimeapi.ContainerState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[id] = s
}

func (r *toy) send(id string, what runtimeapi.ContainerEventType) {
	r.events <- &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: what,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "pod"}},
	}
}

func (r *toy) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.called("ListPodSandbox")
	return []*runtimeapi.PodSandbox{{Id: "s"}}, nil
}

func (r *toy) ListContainers(
	ctx context.Context,
	f *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	r.called("ListContainers")
	if r.onList != nil {
		if err := r.onList(ctx); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtimeapi.Container
	for id, s := range r.containers {
		if f.GetId() == "" || f.Id == id {
			list = append(list, &runtimeapi.Container{Id: id, PodSandboxId: "s", State: s})
		}
	}
	return list, nil
}

func (r *toy) CreateContainer(
	context.Context,
	string,
	*runtimeapi.ContainerConfig,
	*runtimeapi.PodSandboxConfig,
) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	id := fmt.Sprint("c", r.made)
	r.containers[id] = runtimeapi.ContainerState_CONTAINER_CREATED
	return id, r.failure()
}

// failure returns the error of a call that works nevertheless; r.mu is held.
func (r *toy) failure() error {
	err := r.failNext
	r.failNext = nil
	return err
}

func (r *toy) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

func (r *toy) StartContainer(_ context.Context, id string) error {
	r.set(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
	if r.onStart != nil {
		r.onStart()
	}
	return nil
}

func (r *toy) StopContainer(_ context.Context, id string, _ int64) error {
	r.set(id, runtimeapi.ContainerState_CONTAINER_EXITED)
	return nil
}

func (r *toy) RemoveContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, id)
	return r.failure()
}

func (r *toy) RemovePodSandbox(context.Context, string) error { return nil }

func (r *toy) ContainerStatus(
	_ context.Context,
	id string,
	_ bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	r.called("ContainerStatus")
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: id, State: r.containers[id], LogPath: "/log/" + id},
	}, nil
}

func (r *toy) GetContainerEvents(
	ctx context.Context,
	events chan *runtimeapi.ContainerEventResponse,
	_ func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	for {
		select {
		case e := <-r.events:
			if e == nil {
				return errors.New("the stream has ended")
			}
			events <- e // as the kubelet's client does: without a look at ctx
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
