// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// newerTimeout bounds a GetNewerThan, so that a worker outlives an absent runtime.
const newerTimeout = 2 * time.Minute

// truthTimeout bounds a question to the runtime itself.
const truthTimeout = 10 * time.Second

// workers are the simulated pod workers, a worker for each pod with an event. Like the kubelet's,
// each waits for a status newer than the end of its last sync. mu guards the fields below.
type workers struct {
	agent *Agent
	all   sync.WaitGroup

	mu    sync.Mutex
	live  map[cache.UID]chan struct{} // capacity 1: the pod had an event
	stats WorkerStats
	waits []time.Duration
}

func newWorkers(a *Agent) *workers {
	return &workers{agent: a, live: map[cache.UID]chan struct{}{}}
}

// kick wakes the pod's worker, and starts the worker at the first event.
func (w *workers) kick(ctx context.Context, uid cache.UID) {
	if w.agent.truth == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	kicks, ok := w.live[uid]
	if !ok {
		kicks = make(chan struct{}, 1)
		w.live[uid] = kicks
		w.all.Go(func() { w.work(ctx, uid, kicks) })
	}
	select {
	case kicks <- struct{}{}:
	default:
	}
}

// work syncs a pod until the pod is gone from the cache and from the runtime.
func (w *workers) work(ctx context.Context, uid cache.UID, kicks <-chan struct{}) {
	period := w.agent.config.WorkerPeriod
	for {
		select {
		case <-kicks:
		case <-time.After(period/2 + rand.N(period)):
		case <-ctx.Done():
			return
		}
		gone := w.sync(ctx, uid)
		w.mu.Lock()
		if gone && len(kicks) == 0 {
			delete(w.live, uid)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// sync asks the runtime, asks the cache for something newer, asks the runtime again, and compares.
// It reports whether the pod is gone.
func (w *workers) sync(ctx context.Context, uid cache.UID) (gone bool) {
	before, errBefore := w.truth(ctx, uid)
	asked := time.Now()
	limited, cancel := context.WithTimeout(ctx, newerTimeout)
	status, err := w.agent.cache.GetNewerThan(limited, uid, asked)
	cancel()
	took := time.Since(asked)
	if ctx.Err() != nil {
		return false
	}
	if status == nil {
		w.agent.observer.violate("pod %s: GetNewerThan handed out nil", uid)
		return false
	}
	after, errAfter := w.truth(ctx, uid)
	known := errBefore == nil && errAfter == nil

	w.mu.Lock()
	w.stats.Gets++
	if known {
		w.stats.Checked++
		w.waits = append(w.waits, took)
	}
	w.mu.Unlock()
	if !known || err != nil {
		return false
	}
	w.compare(uid, status, before, after)
	return len(after) == 0 && len(phasesOf(status)) == 0
}

// compare compares the answer with the runtime's lists. The runtime's state before the question is
// the least answer; the state still there afterwards cannot be missing.
func (w *workers) compare(uid cache.UID, status *cri.PodStatus, before, after map[string]pleg.Phase) {
	got := phasesOf(status)
	for id, least := range before {
		phase, there := got[id]
		_, still := after[id]
		switch {
		case there && phase < least && phase != pleg.PhaseUnknown:
			w.agent.observer.violate("pod %s: GetNewerThan showed %s %v, older than asked: it was %v before", uid, id, phase, least)
		case !there && still:
			w.agent.observer.violate("pod %s: GetNewerThan lacks %s, which was there before (%v) and after", uid, id, least)
		}
	}
}

// truth returns a pod's phases from the runtime's own lists.
func (w *workers) truth(ctx context.Context, uid cache.UID) (map[string]pleg.Phase, error) {
	ctx, cancel := context.WithTimeout(ctx, truthTimeout)
	defer cancel()
	selector := map[string]string{crikit.LabelPodUID: string(uid)}
	phases := map[string]pleg.Phase{}
	sandboxes, err := w.agent.truth.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector},
	})
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes.Items {
		phases[s.Id] = pleg.PhaseExited
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			phases[s.Id] = pleg.PhaseRunning
		}
	}
	containers, err := w.agent.truth.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: selector},
	})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Containers {
		phases[c.Id] = phaseOf[c.State]
	}
	return phases, nil
}

// phaseOf is the phase of a CRI container state.
var phaseOf = map[runtimeapi.ContainerState]pleg.Phase{
	runtimeapi.ContainerState_CONTAINER_CREATED: pleg.PhaseCreated,
	runtimeapi.ContainerState_CONTAINER_RUNNING: pleg.PhaseRunning,
	runtimeapi.ContainerState_CONTAINER_EXITED:  pleg.PhaseExited,
	runtimeapi.ContainerState_CONTAINER_UNKNOWN: pleg.PhaseUnknown,
}

func (w *workers) snapshot() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Workers = len(w.live)
	s.Waits = bench.Summarize(slices.Clone(w.waits))
	return s
}

func (w *workers) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats, w.waits = WorkerStats{}, nil
}
