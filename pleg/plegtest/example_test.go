// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package plegtest_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/pleg/plegtest"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// shown is a status of the cache as the checker takes it.
func shown(uid cache.UID, status *cri.PodStatus, err error) plegtest.Pod {
	pod := plegtest.Pod{UID: uid, Err: err}
	for _, s := range status.Sandboxes() {
		item := pleg.Item{ID: s.ID, Kind: pleg.Sandbox, Phase: s.Phase}
		pod.Items = append(pod.Items, plegtest.Item{Item: item})
	}
	for _, c := range status.Containers() {
		item := pleg.Item{ID: c.ID, Kind: pleg.Container, Phase: c.Phase, Name: c.Name}
		pod.Items = append(pod.Items, plegtest.Item{Item: item, Detail: c.ExitCode})
	}
	return pod
}

// cached is all that the cache shows.
func cached(statuses *cache.Cache[cri.PodStatus]) (pods []plegtest.Pod) {
	for _, uid := range statuses.UIDs() {
		status, err := statuses.Get(uid)
		pods = append(pods, shown(uid, status, err))
	}
	return pods
}

// phases are those of the runtime's states; of a container of which it has lost track it is
// pleg.PhaseUnknown.
var phases = map[fakeruntime.State]pleg.Phase{
	fakeruntime.StateCreated:  pleg.PhaseCreated,
	fakeruntime.StateRunning:  pleg.PhaseRunning,
	fakeruntime.StateReady:    pleg.PhaseRunning,
	fakeruntime.StateExited:   pleg.PhaseExited,
	fakeruntime.StateNotReady: pleg.PhaseExited,
}

// truth is the runtime's actual state.
func truth(rt *fakeruntime.Runtime) (pods []plegtest.Pod) {
	for _, p := range rt.Truth().Pods {
		pod := plegtest.Pod{UID: cache.UID(p.UID)}
		for _, s := range p.Sandboxes {
			item := pleg.Item{ID: s.ID, Kind: pleg.Sandbox, Phase: phases[s.State]}
			pod.Items = append(pod.Items, plegtest.Item{Item: item})
			for _, c := range s.Containers {
				item := pleg.Item{ID: c.ID, Kind: pleg.Container, Phase: phases[c.State], Name: c.Name}
				pod.Items = append(pod.Items, plegtest.Item{Item: item, Detail: c.ExitCode})
			}
		}
		pods = append(pods, pod)
	}
	return pods
}

// An agent's test: a generator on the fake runtime, judged through the life of a container.
func Example() {
	rt := must(fakeruntime.New(fakeruntime.Config{Seed: 1}))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	listener := bufconn.Listen(1 << 16)
	running.Go(func() { check(rt.Serve(ctx, listener)) })
	client := must(cri.Dial(ctx, cri.Config{Dialer: listener.DialContext}))
	defer func() {
		stop()
		running.Wait()
		check(client.Close())
		rt.Close()
	}()

	var checker plegtest.Checker
	statuses := cache.New(cri.EmptyStatus)
	generator := must(pleg.New(pleg.Config[cri.PodStatus]{
		Source: client, Stream: client, Cache: statuses,
		Merge: func(prev, next *cri.PodStatus) *cri.PodStatus { // sees each status before its storage
			checker.Shows(shown(next.UID(), next, nil))
			return cri.KeepIPs(prev, next)
		},
	}))
	running.Go(func() { check(generator.Run(ctx)) })

	sandbox := must(rt.AddPod(fakeruntime.PodSpec{UID: "4f6b", Name: "web", Namespace: "shop"}))
	must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "spare"})) // never started
	side := must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "side"}))
	check(rt.Start(side)) // runs on
	container := must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "app"}))
	check(rt.Start(container))
	check(rt.Exit(container, 3))
	for event := range generator.Watch() {
		status, err := statuses.Get(event.Pod)
		checker.Event(event, shown(event.Pod, status, err))
		if event.ID == container && event.Type == pleg.ContainerDied {
			break // the last change of this test
		}
	}
	must(statuses.GetNewerThan(ctx, "4f6b", time.Now())) // the cache shows what was before, events or not
	checker.Rest(cached(statuses), truth(rt))
	fmt.Println("violations:", checker.Err())

	// An event out of order is a violation.
	checker.Event(pleg.Event{Pod: "4f6b", ID: container, Type: pleg.ContainerStarted}, plegtest.Pod{})
	fmt.Println("convicted:", checker.Count(plegtest.Disordered, plegtest.Repeated))
	// Output:
	// violations: <nil>
	// convicted: 1
}
