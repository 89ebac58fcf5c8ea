// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Cache is the kubelet's pod cache. A waiting GetNewerThan is a demand: the generator reads that
// pod at once. The write methods only complete the interface; a running [Generator] is the only
// writer.
type Cache struct {
	statuses *cache.Cache[kubecontainer.PodStatus]
}

var _ kubecontainer.Cache = (*Cache)(nil)

func newCache() *Cache {
	return &Cache{statuses: cache.New(func(uid cache.UID) *kubecontainer.PodStatus {
		return &kubecontainer.PodStatus{ID: types.UID(uid)}
	})}
}

// Get returns the last known status of the pod, never nil, and the error of its last read.
func (c *Cache) Get(id types.UID) (*kubecontainer.PodStatus, error) {
	return c.statuses.Get(cache.UID(id))
}

// GetNewerThan blocks until a look at the pod begun after minTime was applied, and returns a
// status with those phases. The rest of the status is as of the last read of statuses, as the
// stock cache has it: such a read follows each change of a phase, an end a moment later, each own
// call that changes fields, and RequestReinspect. As in the stock cache, the call cannot be
// cancelled.
func (c *Cache) GetNewerThan(id types.UID, minTime time.Time) (*kubecontainer.PodStatus, error) {
	return c.statuses.GetPhasesNewerThan(context.Background(), cache.UID(id), minTime)
}

// Set stores the result of a read begun at the given time, unless the cache is newer. An error
// leaves the last good status readable beside the error.
func (c *Cache) Set(id types.UID, status *kubecontainer.PodStatus, err error, at time.Time) bool {
	if err != nil {
		status = nil // the runtime manager returns none beside an error
	}
	return c.statuses.Set(cache.UID(id), status, err, at)
}

// SetObservedTime notes that a read begun at the given time confirmed the cached status of the
// pod.
func (c *Cache) SetObservedTime(id types.UID, at time.Time) { c.statuses.Observe(cache.UID(id), at) }

// Delete forgets the pod as of now.
func (c *Cache) Delete(id types.UID) { c.statuses.Delete(cache.UID(id), time.Now()) }

// UpdateTime notes that a read of everything begun at the given time is in the cache.
func (c *Cache) UpdateTime(at time.Time) { c.statuses.Advance(at) }
