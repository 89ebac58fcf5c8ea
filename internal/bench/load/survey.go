// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// Owner says whether the process behind a load lives.
type Owner uint8

// States of an Owner.
const (
	// OwnerUnknown: the process is invisible from here, as in another container.
	OwnerUnknown Owner = iota
	OwnerLives
	OwnerEnded
)

// String is for people.
func (o Owner) String() string {
	return [...]string{"cannot be seen from here", "is running", "has ended"}[o]
}

// Look lists the sandboxes of a runtime and tells who made them.
func Look(ctx context.Context, conn grpc.ClientConnInterface) (Survey, error) {
	client := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return Survey{}, fmt.Errorf("load: list the sandboxes: %w", err)
	}
	var s Survey
	runs := make(map[string]*Remains)
	for _, item := range list.GetItems() {
		id := item.GetLabels()[RunLabel]
		if id == "" {
			if item.GetLabels()[LabelPodUID] != "" {
				s.Strangers = append(s.Strangers, item.GetMetadata().GetNamespace()+"/"+item.GetMetadata().GetName())
			}
			continue
		}
		r := runs[id]
		if r == nil {
			r = &Remains{
				RunID: id, Owner: ownerOf(item.GetAnnotations()[ownerAnnotation]), logs: item.GetAnnotations()[logsAnnotation],
			}
			runs[id] = r
		}
		r.Sandboxes++
	}
	slices.Sort(s.Strangers)
	containers, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{}, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return Survey{}, fmt.Errorf("load: list the containers: %w", err)
	}
	for _, item := range containers.GetContainers() {
		if id := item.GetLabels()[RunLabel]; id != "" && runs[id] == nil { // their sandboxes are lost
			runs[id] = &Remains{RunID: id, Owner: ownerOf(item.GetAnnotations()[ownerAnnotation]), logs: item.GetAnnotations()[logsAnnotation]}
		}
	}
	for _, r := range runs {
		s.Runs = append(s.Runs, *r)
	}
	slices.SortFunc(s.Runs, func(a, b Remains) int { return cmp.Compare(a.RunID, b.RunID) })
	return s, nil
}

// Remove removes the leftovers of the load: its sandboxes with their containers, and its logs.
func (r Remains) Remove(ctx context.Context, conn grpc.ClientConnInterface) error {
	return errors.Join(RemoveRun(ctx, conn, r.RunID), RemoveLogs(r.logs))
}

// logsPrefix begins the name of every LogDirectory made by [MakeLogs].
const logsPrefix = "pleg-bench-logs-"

// MakeLogs makes a folder for the logs of a load in the folder parent, or in the folder for
// temporary files if parent is empty. The runtime must see the folder under the same path.
func MakeLogs(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, logsPrefix)
	if err != nil {
		return "", fmt.Errorf("make a folder for the containers' logs: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("make a folder for the containers' logs: %w", err)
	}
	return dir, nil
}

// scratchPrefix begins the name of every folder that [MakeScratch] has made, and ownerFile names
// the file in the folder that names the process.
const scratchPrefix, ownerFile = "pleg-bench-run-", "process"

// MakeScratch makes a folder for the sockets of a run, and removes those of killed runs.
func MakeScratch() (string, error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*")) // fails for bad patterns only
	for _, dir := range old {
		if name, err := os.ReadFile(filepath.Join(dir, ownerFile)); err == nil && ownerOf(string(name)) == OwnerEnded {
			_ = os.RemoveAll(dir) // or stays: it is in nobody's way
		}
	}
	dir, err := os.MkdirTemp("", scratchPrefix)
	if err != nil {
		return "", fmt.Errorf("make a folder for sockets: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(processName()), 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("make a folder for sockets: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// RemoveLogs removes a folder made by MakeLogs, with its logs. The folder's path may come from a
// runtime, so other folders and files that are no logs are left alone.
func RemoveLogs(dir string) error {
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), logsPrefix) {
		return nil
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, f := range files {
		if f.Type().IsRegular() && strings.HasSuffix(f.Name(), logSuffix) {
			errs = append(errs, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	errs = append(errs, os.Remove(dir))
	if err := errors.Join(errs...); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the containers' logs: %w", err)
	}
	return nil
}
