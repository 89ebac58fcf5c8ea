// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// podWorkers calls act after each event of a pod, and not twice at once for the same pod. The
// status was read after the event, all of it; beside an error it may be older.
type podWorkers struct {
	statuses *cache.Cache[cri.PodStatus]
	act      func(ctx context.Context, pod cache.UID, status *cri.PodStatus, err error) (again bool)

	mu    sync.Mutex
	again map[cache.UID]bool // pods with a worker, and whether an event has come since its last look
	group sync.WaitGroup     // ends after the events and ctx
}

// told is for each event of Watch. It does not block.
func (w *podWorkers) told(ctx context.Context, pod cache.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, works := w.again[pod]
	w.again[pod] = works
	if !works {
		w.group.Go(func() { w.work(ctx, pod) })
	}
}

// work looks and acts until there is nothing new: a pod that is at rest, or gone, has no worker.
func (w *podWorkers) work(ctx context.Context, pod cache.UID) {
	for works := true; works; {
		status, err := w.statuses.GetNewerThan(ctx, pod, time.Now()) // newer than the event, and than what act has done
		if ctx.Err() != nil {
			return
		}
		again := w.act(ctx, pod, status, err)
		w.mu.Lock()
		if works = w.again[pod] || again; works {
			w.again[pod] = false
		} else {
			delete(w.again, pod)
		}
		w.mu.Unlock()
	}
}

// look is what a worker was given.
type look struct {
	status *cri.PodStatus
	err    error
}

// gone reports whether the pod has gone.
func (l look) gone() bool {
	s := l.status
	return l.err == nil && len(s.Sandboxes())+len(s.Containers())+len(s.Unread()) == 0
}

// TestPodWorkers runs the workers of docs/agents.md through the life of a pod, a restart of the
// runtime and the end of the agent.
func TestPodWorkers(t *testing.T) {
	rt := must(fakeruntime.New(fakeruntime.Config{Seed: 1}))(t)
	defer rt.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var running sync.WaitGroup
	listener := bufconn.Listen(1 << 16)
	running.Go(func() { _ = rt.Serve(ctx, listener) })
	client := must(cri.New(cri.Config{Dialer: listener.DialContext}))(t)
	defer client.Close()
	statuses := cache.New(cri.EmptyStatus)
	generator := must(pleg.New(pleg.Config[cri.PodStatus]{
		Source: client, Stream: client, Cache: statuses, Merge: cri.KeepIPs,
	}))(t)

	looks := make(chan look)
	workers := podWorkers{statuses: statuses, again: make(map[cache.UID]bool)}
	workers.act = func(ctx context.Context, _ cache.UID, status *cri.PodStatus, err error) (again bool) {
		select {
		case looks <- look{status, err}:
		case <-ctx.Done():
		}
		return err != nil
	}
	running.Go(func() {
		for event := range generator.Watch() {
			workers.told(ctx, event.Pod)
		}
		workers.group.Wait()
	})
	running.Go(func() { _ = generator.Run(ctx) })
	until := func(what string, is func(look) bool) {
		t.Helper()
		for {
			select {
			case l := <-looks:
				if is(l) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no worker has seen %s", what)
			}
		}
	}
	sandbox := must(rt.AddPod(fakeruntime.PodSpec{UID: "4f6b"}))(t)
	container := must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{}))(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(rt.Start(container))
	app := func(phase pleg.Phase) func(look) bool {
		return func(l look) bool { return len(l.status.Containers()) == 1 && l.status.Containers()[0].Phase == phase }
	}
	until("the container running", app(pleg.PhaseRunning))
	rt.Down()
	check(rt.Exit(container, 1))
	rt.Up(0)
	until("the end beside a runtime that is down", app(pleg.PhaseExited))
	check(rt.RemoveSandbox(sandbox))
	until("the pod gone", look.gone)
	stop()
	running.Wait()
	if n := statuses.Waiting(); n != 0 {
		t.Errorf("%d workers wait after the end", n)
	}
}
