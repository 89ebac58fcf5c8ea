// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"maps"
	"slices"
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

const (
	// maxHints bounds the pods that only an event, and no listing yet, showed to be without the label.
	maxHints = 4096
	// maxHintsOfPod bounds the sandboxes of one of them.
	maxHintsOfPod = 16
)

// unlabelled knows the pods that a list filtered by the kubelet's pod UID label would miss, in
// whole or in part, because their sandboxes or containers do not carry it (crictl sets labels only
// if told to), and the IDs of the sandboxes that find them. Its methods may be called from any
// goroutine.
type unlabelled struct {
	mu     sync.Mutex
	listed map[cache.UID][]string // by listings
	// hinted are known from events since the last listing began, older from events before that. A
	// hint is dropped when a listing that began after it has ended, which shows the pod, or that it
	// is gone.
	hinted, older map[cache.UID][]string
}

// set says that the last listing found the pod by these sandboxes; none, by its labels.
func (u *unlabelled) set(uid cache.UID, ids []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(ids) == 0 {
		delete(u.listed, uid)
		return
	}
	if u.listed == nil {
		u.listed = make(map[cache.UID][]string)
	}
	u.listed[uid] = ids
}

// forget says that a listing showed the pod to be gone.
func (u *unlabelled) forget(uid cache.UID) { u.set(uid, nil) }

// hint says that an event showed a sandbox of the pod that does not carry the label.
func (u *unlabelled) hint(uid cache.UID, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.listed[uid], id) || slices.Contains(u.hinted[uid], id) {
		return
	}
	ids, known := u.hinted[uid]
	if !known {
		if len(u.hinted)+len(u.older) >= maxHints {
			return
		}
		ids = u.older[uid]
	}
	if u.hinted == nil {
		u.hinted = make(map[cache.UID][]string)
	}
	if !slices.Contains(ids, id) && len(ids) < maxHintsOfPod {
		ids = append(slices.Clip(ids), id)
	}
	u.hinted[uid] = ids
}

// begin says that a listing begins.
func (u *unlabelled) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.older == nil {
		u.older = u.hinted
	} else {
		maps.Copy(u.older, u.hinted) // no listing has ended since
	}
	u.hinted = nil
}

// end says that the listing that began last has shown everything.
func (u *unlabelled) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.older = nil
}

// sandboxes returns the IDs of the sandboxes by which the pod is found, none if its labels do.
func (u *unlabelled) sandboxes(uid cache.UID) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.listed)+len(u.hinted)+len(u.older) == 0 {
		return nil
	}
	ids := make(map[string]struct{})
	for _, known := range []map[cache.UID][]string{u.listed, u.hinted, u.older} {
		for _, id := range known[uid] {
			ids[id] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
