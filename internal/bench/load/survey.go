// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// Survey is the content of a runtime, for a load about to begin.
type Survey struct {
	// Strangers are the sorted names (namespace/pod) of sandboxes with a Kubernetes pod's UID that
	// no load made, whatever their labels are. An agent such as a kubelet manages them.
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
}

// runForm is the form of a run's ID, uidForm that of the UID of a load's pod: the run's ID, and two
// numbers.
var (
	runForm = regexp.MustCompile(`^[a-z0-9]{1,32}$`)
	uidForm = regexp.MustCompile(`^([a-z0-9]{1,32})-[0-9]{4,9}-[0-9]{6,9}$`)
)

// uidOf is the UID of a pod, which is never reused.
func uidOf(runID string, place, generation int) string {
	return fmt.Sprintf("%s-%04d-%06d", runID, place, generation)
}

// runOf returns the run that made something with a label and a pod's UID; empty if no load made it.
// A kubelet gives a sandbox the labels that a tenant writes, and the API server's UID.
func runOf(label, uid string) string {
	if parts := uidForm.FindStringSubmatch(uid); parts != nil && parts[1] == label {
		return label
	}
	return ""
}

func runOfSandbox(s *runtimeapi.PodSandbox) string {
	return runOf(s.GetLabels()[RunLabel], s.GetMetadata().GetUid())
}

func runOfContainer(c *runtimeapi.Container) string {
	return runOf(c.GetLabels()[RunLabel], c.GetLabels()[LabelPodUID])
}

// Look lists the content of a runtime and tells who made it.
func Look(ctx context.Context, conn grpc.ClientConnInterface) (Survey, error) {
	sandboxes, containers, err := list(ctx, runtimeapi.NewRuntimeServiceClient(conn), "", "")
	if err != nil {
		return Survey{}, err
	}
	var s Survey
	runs := make(map[string]*Remains)
	// enter returns the leftovers of a run.
	enter := func(id string) *Remains {
		if runs[id] == nil {
			runs[id] = &Remains{RunID: id, Owner: ownerOf(id)}
		}
		return runs[id]
	}
	for _, item := range sandboxes {
		if id := runOfSandbox(item); id != "" {
			enter(id).Sandboxes++
		} else if item.GetLabels()[LabelPodUID] != "" {
			s.Strangers = append(
				s.Strangers,
				printable.Text(item.GetMetadata().GetNamespace()+"/"+item.GetMetadata().GetName()),
			)
		}
	}
	slices.Sort(s.Strangers)
	for _, item := range containers {
		if id := runOfContainer(item); id != "" { // whose sandbox may be lost
			enter(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(runs)) {
		s.Runs = append(s.Runs, *runs[id])
	}
	return s, nil
}

// Remove removes the leftovers of the load: its sandboxes with their containers, then the folder
// that the load itself has recorded, by which others know the owner.
func (r Remains) Remove(ctx context.Context, conn grpc.ClientConnInterface) error {
	meter, stop := standstill.Start()
	defer stop()
	if err := RemoveRun(ctx, conn, r.RunID, meter); err != nil {
		return err
	}
	return removeFolderOf(r.RunID)
}
