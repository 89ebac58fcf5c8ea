// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Bounds of the look for what lists lack: how many events' containers are kept, and how many items
// are asked for by ID.
const (
	mostTold   = 10_000
	mostAbsent = 20
)

// name keeps the container that an event names, until an event tells of its removal. The caller
// holds the lock.
func (e *examiner) name(event *runtimeapi.ContainerEventResponse) {
	id := event.GetContainerId()
	pod := event.GetPodSandboxStatus()
	if event.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		delete(e.told, id)
		return
	}
	if id == "" || id == pod.GetId() || len(e.told) >= mostTold {
		return
	}
	found := Item{
		ID:        id,
		Sandbox:   pod.GetId(),
		Kind:      "container",
		Pod:       pod.GetMetadata().GetName(),
		Namespace: pod.GetMetadata().GetNamespace(),
	}
	for _, c := range event.GetContainersStatuses() {
		if c.GetId() == id {
			found.Name = c.GetMetadata().GetName()
		}
	}
	e.told[id] = found
}

// named are the containers that events have named so far and not called removed.
func (e *examiner) named() map[string]Item {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.told)
}

// unlisted reports whether the second list lacks a container that was named before it.
func (e *examiner) unlisted(named map[string]Item) bool {
	for id := range named {
		if _, listed := e.second[id]; !listed {
			return true
		}
	}
	return false
}

// suspects are the items that were listed or named, and that no later list shows. Of the listed
// ones no event tells.
func (e *examiner) suspects(named map[string]Item) map[string]Item {
	suspects := maps.Clone(named)
	if suspects == nil {
		suspects = make(map[string]Item)
	}
	e.mu.Lock()
	for id, i := range e.first {
		if !e.heard[id] {
			suspects[id] = i.Item
		}
	}
	e.mu.Unlock()
	maps.DeleteFunc(suspects, func(id string, _ Item) bool {
		_, listed := e.second[id]
		_, back := e.third[id]
		return listed || back
	})
	return suspects
}

// lookForAbsent asks for the suspects by ID. A runtime that answers for one has it, and has not
// listed it. Nothing is asked any more once a call hangs.
func (e *examiner) lookForAbsent(ctx context.Context, named map[string]Item) {
	suspects := e.suspects(named)
	e.unsure = make(map[string]bool)
	asked := 0
	for _, id := range slices.Sorted(maps.Keys(suspects)) {
		if asked >= mostAbsent || ctx.Err() != nil || e.enough() != "" {
			e.unsure[id] = true
			continue
		}
		asked++
		has, err := e.has(ctx, suspects[id])
		if has {
			e.absent = append(e.absent, suspects[id])
		}
		if err != nil && hung(err) {
			asked = mostAbsent
		}
	}
}

// has asks whether the runtime has an item.
func (e *examiner) has(ctx context.Context, i Item) (bool, error) {
	if i.Kind == "sandbox" {
		request := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: i.ID}
		answer, _, err := try(ctx, e, "PodSandboxStatus", e.client.PodSandboxStatus, request)
		return err == nil && answer.GetStatus() != nil, err
	}
	request := &runtimeapi.ContainerStatusRequest{ContainerId: i.ID}
	answer, _, err := try(ctx, e, "ContainerStatus", e.client.ContainerStatus, request)
	return err == nil && answer.GetStatus() != nil, err
}
