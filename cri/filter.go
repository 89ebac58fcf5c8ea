// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The choice of pods: which of the runtime's pods a client shows, in lists and in events.

import (
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

// PodMeta is what a [Config.Filter] chooses by.
type PodMeta struct {
	// UID, Name and Namespace are the pod's, from the metadata of its sandbox, else from the kubelet's
	// labels on its containers.
	UID       cache.UID
	Name      string
	Namespace string
	// Labels are those of the sandbox, among them the pod's own as copied by the kubelet when the
	// sandbox was made. Nil for a pod of which no sandbox was ever shown. They must not be changed.
	Labels map[string]string
}

// excluded are the pods that the filter has refused. Its methods may be called from any goroutine.
type excluded struct {
	filter func(PodMeta) bool // nil: all pods pass

	mu sync.Mutex // guards the fields below
	// listed are the refused pods of the last listing, heard those refused by an event since it began,
	// olderHeard those of earlier events. As with the hints of unlabelled pods, a listing begun after
	// an event shows the pod or its absence.
	listed            map[cache.UID]struct{}
	heard, olderHeard map[cache.UID]struct{}
}

// passes asks the filter.
func (x *excluded) passes(meta PodMeta) bool { return x.filter == nil || x.filter(meta) }

// has reports whether the pod is known to be refused.
func (x *excluded) has(uid cache.UID) bool {
	if x.filter == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, known := range []map[cache.UID]struct{}{x.listed, x.heard, x.olderHeard} {
		if _, ok := known[uid]; ok {
			return true
		}
	}
	return false
}

// note remembers a pod refused by an event. When maxHints are remembered, further pods are asked
// about again with each event.
func (x *excluded) note(uid cache.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.heard)+len(x.olderHeard) >= maxHints {
		return
	}
	if x.heard == nil {
		x.heard = make(map[cache.UID]struct{})
	}
	x.heard[uid] = struct{}{}
}

// begin notes the start of a listing.
func (x *excluded) begin() {
	if x.filter == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.olderHeard == nil {
		x.olderHeard = x.heard
	} else {
		for uid := range x.heard { // no listing has ended since
			x.olderHeard[uid] = struct{}{}
		}
	}
	x.heard = nil
}

// set notes whether the listing, which is about to end, shows the pod and the filter refuses it.
func (x *excluded) set(uid cache.UID, refused bool) {
	if x.filter == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !refused {
		delete(x.listed, uid)
		return
	}
	if x.listed == nil {
		x.listed = make(map[cache.UID]struct{})
	}
	x.listed[uid] = struct{}{}
}

// end notes that the last begun listing was complete.
func (x *excluded) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.olderHeard = nil
}

// refusesSandbox reports whether the filter refuses the pod of a sandbox shown by an event, and
// remembers a refused pod for events that show no sandbox.
func (x *excluded) refusesSandbox(s *sandboxItem, raw []byte) bool {
	if x.filter == nil {
		return false
	}
	meta := metaOfSandbox(s, raw, labelsOfPodSandboxStatus)
	if x.passes(meta) {
		return false
	}
	x.note(meta.UID)
	return true
}

// metaOfSandbox returns what the filter chooses by, from an encoded sandbox with its labels in the
// given field, already read into s.
func metaOfSandbox(s *sandboxItem, raw []byte, labels int32) PodMeta {
	meta := PodMeta{
		UID:       cache.UID(s.uid()),
		Name:      truncate(string(s.meta.name)),
		Namespace: truncate(string(s.meta.namespace)),
		Labels:    make(map[string]string),
	}
	for f := (fields{rest: raw}); f.next(); {
		if int32(f.num) != labels || !f.isBytes(f.num) {
			continue
		}
		if key, value, ok := mapEntry(f.data); ok {
			meta.Labels[string(key)] = string(value)
		}
	}
	return meta
}
