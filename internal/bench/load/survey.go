// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Survey is the content of a runtime, for a load about to begin.
type Survey struct {
	// Strangers are the sorted names (namespace/pod) of sandboxes with a Kubernetes pod's UID that
	// no load made. An agent such as a kubelet manages them.
	Strangers []string
	// Runs are the loads with sandboxes, in the order of their IDs.
	Runs []Remains
}

// Remains are the leftovers of a load on a runtime.
type Remains struct {
	RunID     string
	Sandboxes int
	// Owner is the state of the process that made the sandboxes.
	Owner Owner
	// logs is the load's LogDirectory, empty if the sandboxes do not say.
	logs string
}

// Look lists the content of a runtime and tells who made it.
func Look(ctx context.Context, conn grpc.ClientConnInterface) (Survey, error) {
	sandboxes, containers, err := list(ctx, runtimeapi.NewRuntimeServiceClient(conn), "", "")
	if err != nil {
		return Survey{}, err
	}
	var s Survey
	runs := make(map[string]*Remains)
	// enter returns the leftovers of the run with the labels, nil for what no load made.
	enter := func(labels, annotations map[string]string) *Remains {
		id := labels[RunLabel]
		if id != "" && runs[id] == nil {
			runs[id] = &Remains{RunID: id, logs: annotations[logsAnnotation]}
			if isLogs(runs[id].logs) {
				runs[id].Owner = ownerOf(runs[id].logs)
			}
		}
		return runs[id]
	}
	for _, item := range sandboxes {
		if r := enter(item.GetLabels(), item.GetAnnotations()); r != nil {
			r.Sandboxes++
		} else if item.GetLabels()[LabelPodUID] != "" {
			s.Strangers = append(s.Strangers, item.GetMetadata().GetNamespace()+"/"+item.GetMetadata().GetName())
		}
	}
	slices.Sort(s.Strangers)
	for _, item := range containers {
		enter(item.GetLabels(), item.GetAnnotations()) // whose sandboxes may be lost
	}
	for _, id := range slices.Sorted(maps.Keys(runs)) {
		s.Runs = append(s.Runs, *runs[id])
	}
	return s, nil
}

// Remove removes the leftovers of the load: its sandboxes with their containers, then its logs, by
// which others know the owner.
func (r Remains) Remove(ctx context.Context, conn grpc.ClientConnInterface) error {
	if err := RemoveRun(ctx, conn, r.RunID); err != nil {
		return err
	}
	return removeLogs(r.logs)
}
