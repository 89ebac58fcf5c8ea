// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
	"fmt"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// podStatus is an embedder's own status type: the generator never looks into it.
type podStatus struct{ Running int }

// oneContainer is an embedder's own runtime: a source of reads.
type oneContainer struct{}

func (oneContainer) List(ctx context.Context, _ pleg.Revision) (pleg.Listing, error) {
	pod, err := oneContainer{}.ListPod(ctx, "pod-1")
	return pleg.Listing{Pods: []pleg.Pod{pod}}, err
}

func (oneContainer) ListPod(_ context.Context, uid cache.UID) (pleg.Pod, error) {
	return pleg.Pod{UID: uid, Name: "web", Namespace: "default", Items: []pleg.Item{
		{ID: "c1", Kind: pleg.Container, Phase: pleg.PhaseRunning},
	}}, nil
}

func (oneContainer) Inspect(_ context.Context, pod pleg.Pod) (pleg.Inspection[podStatus], error) {
	return pleg.Inspection[podStatus]{Status: &podStatus{Running: len(pod.Items)}, Pod: pod}, nil
}

func Example() {
	statuses := cache.New[podStatus](nil)
	generator, err := pleg.New(pleg.Config[podStatus]{Source: oneContainer{}, Cache: statuses})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- generator.Run(ctx) }()

	event := <-generator.Watch()
	status, _ := statuses.Get(event.Pod) // the cache shows a change before Watch tells of it
	fmt.Println(event.Pod, event.Type, event.ID, "running:", status.Running)

	cancel()
	fmt.Println("ended:", <-done)
	// Output:
	// pod-1 ContainerStarted c1 running: 1
	// ended: <nil>
}
