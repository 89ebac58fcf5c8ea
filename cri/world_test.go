// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// must panics where a test, or an example, cannot go on.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// serve serves a fake runtime in memory until it is stopped.
func serve(rt *fakeruntime.Runtime) (l *bufconn.Listener, stop func()) {
	l = bufconn.Listen(1 << 20)
	var served sync.WaitGroup
	served.Go(func() {
		if err := rt.Serve(context.Background(), l); err != nil {
			panic(err)
		}
	})
	return l, func() { rt.Close(); served.Wait() }
}

// world is a fake runtime with a client.
type world struct {
	*testing.T
	rt     *fakeruntime.Runtime
	client *cri.Client
	// api makes changes as a kubelet would.
	api runtimeapi.RuntimeServiceClient
}

// inWorld runs f in a bubble of virtual time, which also waits for every goroutine.
func inWorld(t *testing.T, profile string, faults fakeruntime.Faults, f func(w *world)) {
	t.Helper()
	p := must(fakeruntime.ProfileByName(profile))
	synctest.Test(t, func(t *testing.T) {
		rt := must(fakeruntime.New(fakeruntime.Config{Profile: p, Faults: faults, Seed: 1}))
		listener, stop := serve(rt)
		defer stop()
		client := must(cri.New(cri.Config{Endpoint: profile, Dialer: listener.DialContext}))
		defer client.Close()
		conn := must(grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })))
		defer conn.Close()
		f(&world{T: t, rt: rt, client: client, api: runtimeapi.NewRuntimeServiceClient(conn)})
	})
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) sandbox(spec fakeruntime.PodSpec) string {
	w.Helper()
	id := must(w.rt.AddPod(spec))
	return id
}

func (w *world) container(sandbox string, spec fakeruntime.ContainerSpec) string {
	w.Helper()
	id := must(w.rt.AddContainer(sandbox, spec))
	return id
}

var phaseOf = map[fakeruntime.State]pleg.Phase{
	fakeruntime.StateCreated: pleg.PhaseCreated, fakeruntime.StateRunning: pleg.PhaseRunning, fakeruntime.StateExited: pleg.PhaseExited,
	fakeruntime.StateReady: pleg.PhaseRunning, fakeruntime.StateNotReady: pleg.PhaseExited,
}

// truth is the expected content of the runtime, in the order of sortPods.
func (w *world) truth() []pleg.Pod {
	var pods []pleg.Pod
	for _, p := range w.rt.Truth().Pods {
		pod := pleg.Pod{UID: cache.UID(p.UID), Name: p.Name, Namespace: p.Namespace}
		for _, s := range p.Sandboxes {
			pod.Items = append(pod.Items, pleg.Item{ID: s.ID, Kind: pleg.Sandbox, Phase: phaseOf[s.State]})
			for _, c := range s.Containers {
				pod.Items = append(pod.Items, pleg.Item{ID: c.ID, Kind: pleg.Container, Phase: phaseOf[c.State], Name: c.Name})
			}
		}
		pods = append(pods, pod)
	}
	return sortPods(pods)
}

// sortPods puts pods into a comparable order.
func sortPods(pods []pleg.Pod) []pleg.Pod {
	for _, p := range pods {
		sortItems(p.Items)
	}
	slices.SortFunc(pods, func(a, b pleg.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return pods
}

func sortItems(items []pleg.Item) []pleg.Item {
	slices.SortFunc(items, func(a, b pleg.Item) int { return strings.Compare(a.ID, b.ID) })
	return items
}
