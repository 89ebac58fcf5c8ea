// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/kubelet/podsapi"
)

// Tracker notes when the kubelet's status manager came to know of what. It survives restarts of the
// kubelet.
type Tracker struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex       // owns what follows
	since   int64            // when the present watch began: what it showed at first may be old
	ended   map[string]seen  // container ID to the first status that shows it ended
	ready   map[string]int64 // pod UID to the stamp of the first status that shows it ready, since the tracker was told to forget
	deleted map[string]int64 // pod UID to the stamp of the news that the pod is finished, likewise
	dropped int              // how often the kubelet ended the watch
}

// seen is when the status manager told of something, and since when it was being watched.
type seen struct{ at, since int64 }

// newTracker watches the pods API on that socket until Close.
func newTracker(socket string) *Tracker {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tracker{
		cancel: cancel, ended: make(map[string]seen), ready: make(map[string]int64), deleted: make(map[string]int64),
	}
	t.done.Go(func() {
		for ctx.Err() == nil {
			t.mu.Lock()
			t.since = bench.Now()
			t.mu.Unlock()
			_ = podsapi.Watch(ctx, socket, t.told) // the kubelet is down, or dropped us
			t.mu.Lock()
			t.dropped++
			t.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return t
}

func (t *Tracker) close() {
	t.cancel()
	t.done.Wait()
}

func (t *Tracker) told(what podsapi.Type, pod *corev1.Pod) {
	if pod == nil {
		return
	}
	now, uid := bench.Now(), string(pod.UID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if what == podsapi.Deleted { // the pod is finished; no status comes with it
		t.deleted[uid] = now
		return
	}
	first := func(m map[string]int64, key string) {
		if _, ok := m[key]; !ok && key != "" {
			m[key] = now
		}
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, c := range list {
			for _, s := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
				if s == nil || s.ContainerID == "" {
					continue
				}
				if _, ok := t.ended[bare(s.ContainerID)]; !ok {
					t.ended[bare(s.ContainerID)] = seen{now, t.since}
				}
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			first(t.ready, uid)
		}
	}
}

// bare is the runtime's ID of a container of a status.
func bare(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// at returns a stamp out of one of the maps.
func (t *Tracker) at(m map[string]int64, key string) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := m[key]
	return v, ok
}

// shown returns when a status first showed that the container has ended, if it was not over before
// the present watch began.
func (t *Tracker) shown(id string, ended int64) (at int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.ended[id]
	return s.at, ok && s.since < ended
}

// forget has the next time that a pod is ready or deleted noted as the first.
func (t *Tracker) forget(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ready, uid)
	delete(t.deleted, uid)
}
