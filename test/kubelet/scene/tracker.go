// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// Tracker notes the kubelet's status manager's knowledge with its times. It survives restarts of
// the kubelet.
type Tracker struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex       // owns the fields below
	since   int64            // begin of the present watch: its first content may be old
	ended   map[string]seen  // container ID to the first status with its end
	ready   map[string]int64 // pod UID to the stamp of its first ready status, since the last forget
	deleted map[string]int64 // pod UID to the stamp of the pod's end, likewise
}

// seen is the time of the status manager's report, and the begin of its watch.
type seen struct{ at, since int64 }

// newTracker watches the pods API on the socket until Close.
func newTracker(socket string) *Tracker {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tracker{
		cancel:  cancel,
		ended:   make(map[string]seen),
		ready:   make(map[string]int64),
		deleted: make(map[string]int64),
	}
	t.done.Go(func() {
		for ctx.Err() == nil {
			t.mu.Lock()
			t.since = bench.Now()
			t.mu.Unlock()
			_ = t.watch(ctx, socket) // the kubelet is down, or dropped us
			_ = bench.Sleep(ctx, 50*time.Millisecond)
		}
	})
	return t
}

func (t *Tracker) close() {
	t.cancel()
	t.done.Wait()
}

// watch takes the pods API's events until the stream ends. The kubelet's status manager sends a
// status at the moment when it takes it.
func (t *Tracker) watch(ctx context.Context, socket string) error {
	conn, err := load.Connect(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := podsapi.NewPodsClient(conn).WatchPods(ctx, &podsapi.WatchPodsRequest{})
	for err == nil {
		var e *podsapi.WatchPodsEvent
		if e, err = stream.Recv(); err != nil || e.Type == podsapi.EventType_INITIAL_SYNC_COMPLETE {
			continue
		}
		var pod corev1.Pod
		if err = pod.Unmarshal(e.Pod); err == nil {
			t.told(e.Type, &pod)
		}
	}
	return err
}

func (t *Tracker) told(what podsapi.EventType, pod *corev1.Pod) {
	now := bench.Now()
	uid := string(pod.UID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if what == podsapi.EventType_DELETED { // the pod is finished; no status comes with it
		t.deleted[uid] = now
		return
	}
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		for _, s := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if s == nil || s.ContainerID == "" {
				continue
			}
			if _, ok := t.ended[bare(s.ContainerID)]; !ok {
				t.ended[bare(s.ContainerID)] = seen{now, t.since}
			}
		}
	}
	if _, ok := t.ready[uid]; !ok && ready(pod.Status) == nil {
		t.ready[uid] = now
	}
}

// bare is the runtime's ID of a container of a status.
func bare(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// at returns a stamp of a map.
func (t *Tracker) at(m map[string]int64, key string) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := m[key]
	return v, ok
}

// shown returns the time of the first status with the container's end, unless over before the
// present watch began.
func (t *Tracker) shown(id string, ended int64) (at int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.ended[id]
	return s.at, ok && s.since < ended
}

// forget makes the next ready status or deletion of a pod count as the first.
func (t *Tracker) forget(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ready, uid)
	delete(t.deleted, uid)
}
