// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The end of a listing: items not shown are removed, the difference is returned, and the pods
// missed by the pod UID label are noted.

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// commit ends a complete listing: items not shown are gone. commit returns the difference from
// revision since if the index is at that revision, else everything, and notes in unlabelled how the
// changed pods can be found.
func (x *index) commit(since pleg.Revision, unlabelled *unlabelled) pleg.Listing {
	x.sweep()
	x.committed = x.round
	delta := since != 0 && since == x.revision
	x.revision++
	listing := pleg.Listing{Revision: x.revision, Delta: delta}
	if delta && len(x.dirty) > 0 {
		listing.Pods = make([]pleg.Pod, 0, len(x.dirty))
	}
	for _, p := range x.dirty {
		p.dirty = false
		if x.pods[p.uid] != p {
			continue // dropped by an earlier listing, and still referred to by a sandbox that came back
		}
		p.compact()
		if len(p.sandboxes)+len(p.containers) == 0 {
			delete(x.pods, p.uid)
			unlabelled.set(p.uid, nil)
			x.forgetRefused(p)
			if p.shown && delta {
				listing.Gone = append(listing.Gone, p.uid)
			}
			p.shown = false // a sandbox record may revive the pod
			continue
		}
		if ids, needed := p.needsIDs(); needed || p.unlabelled {
			p.unlabelled = needed
			unlabelled.set(p.uid, ids)
		}
		x.noteRefused(p)
		if p.refused {
			if p.shown && delta {
				listing.Gone = append(listing.Gone, p.uid) // shown while no sandbox was known
			}
			p.shown = false
			continue
		}
		p.shown = true
		if delta {
			listing.Pods = append(listing.Pods, p.build())
		}
	}
	clear(x.dirty)
	x.dirty = x.dirty[:0]
	if !delta {
		listing.Pods = make([]pleg.Pod, 0, len(x.pods)-x.refused)
		for _, p := range x.pods {
			if !p.refused {
				listing.Pods = append(listing.Pods, p.build())
			}
		}
	}
	listing.Total = len(x.pods) - x.refused
	return listing
}

// forgetRefused notes that a pod is gone.
func (x *index) forgetRefused(p *podRecord) {
	if p.counted {
		x.refused--
	}
	if x.excluded != nil {
		x.excluded.set(p.uid, false)
	}
	p.forgetDecision()
}

// forgetDecision makes the pod one that the filter was not asked about: a sandbox record may revive
// it.
func (p *podRecord) forgetDecision() {
	p.decided = false
	p.bySandbox = false
	p.refused = false
	p.counted = false
}

// noteRefused asks the filter about a pod without any sandbox, of which the containers' labels tell
// the rest, and notes a refused pod for the events about it.
func (x *index) noteRefused(p *podRecord) {
	if x.excluded == nil || x.excluded.filter == nil {
		return
	}
	if !p.decided && p.namespace != "" {
		p.decided = true
		p.refused = !x.excluded.passes(PodMeta{UID: p.uid, Name: p.name, Namespace: p.namespace})
	}
	switch {
	case p.refused && !p.counted:
		x.refused++
	case !p.refused && p.counted:
		x.refused--
	}
	p.counted = p.refused
	x.excluded.set(p.uid, p.refused)
}

// sweep removes the records not shown by the present listing.
func (x *index) sweep() {
	if x.shownContainers < len(x.containers) {
		for _, c := range x.containers {
			if c.round != x.round {
				x.drop(c)
			}
		}
	}
	if x.shownSandboxes < len(x.sandboxes)-x.unlisted {
		for _, s := range x.sandboxes {
			if s.listed && s.round != x.round {
				x.unlist(s)
			}
		}
	}
	if x.stale {
		x.dropUnreferenced()
	}
}

// dropUnreferenced drops removed dependents, and the sandbox records that are neither listed nor
// needed by a container.
func (x *index) dropUnreferenced() {
	x.stale = false
	for id, s := range x.sandboxes {
		if len(s.dependents) > 0 {
			s.dependents = slices.DeleteFunc(s.dependents, func(c *containerRecord) bool { return c.removed || c.sandbox != s })
			slices.SortFunc(s.dependents, func(a, b *containerRecord) int { return strings.Compare(a.id, b.id) })
			s.dependents = slices.Compact(s.dependents)
		}
		if !s.listed && len(s.dependents) == 0 {
			delete(x.sandboxes, id)
			x.unlisted--
		}
	}
}

// compact drops former records of the pod, and repeated ones.
func (p *podRecord) compact() {
	slices.SortFunc(p.sandboxes, func(a, b *sandboxRecord) int { return strings.Compare(a.id, b.id) })
	p.sandboxes = slices.DeleteFunc(slices.Compact(p.sandboxes), func(s *sandboxRecord) bool { return !s.listed || s.pod != p })
	slices.SortFunc(p.containers, func(a, b *containerRecord) int { return strings.Compare(a.id, b.id) })
	p.containers = slices.DeleteFunc(slices.Compact(p.containers), func(c *containerRecord) bool { return c.removed || c.pod != p })
}

// build returns the pod in the form of a listing.
func (p *podRecord) build() pleg.Pod {
	pod := pleg.Pod{
		UID:       p.uid,
		Name:      p.name,
		Namespace: p.namespace,
		Items:     make([]pleg.Item, 0, len(p.sandboxes)+len(p.containers)),
	}
	for _, s := range p.sandboxes {
		pod.Items = append(pod.Items, pleg.Item{ID: s.id, Kind: pleg.Sandbox, Phase: s.phase})
	}
	for _, c := range p.containers {
		pod.Items = append(pod.Items, pleg.Item{
			ID:    c.id,
			Kind:  pleg.Container,
			Phase: c.phase,
			Name:  c.name,
		})
	}
	return pod
}

// needsIDs reports whether the pod UID label misses any of the pod, and if so, the IDs of the
// sandboxes that find the rest.
func (p *podRecord) needsIDs() (ids []string, needed bool) {
	needed = slices.ContainsFunc(p.sandboxes, func(s *sandboxRecord) bool { return !s.labelled }) ||
		slices.ContainsFunc(p.containers, func(c *containerRecord) bool { return c.sandbox != nil })
	if !needed {
		return nil, false
	}
	found := make(map[string]struct{}, len(p.sandboxes))
	note := func(id string) {
		if _, twice := found[id]; !twice {
			found[id] = struct{}{}
			ids = append(ids, id)
		}
	}
	for _, s := range p.sandboxes {
		note(s.id)
	}
	for _, c := range p.containers {
		if c.sandbox != nil {
			note(c.sandbox.id)
		}
	}
	return ids, true
}

const (
	// maxHints bounds the pods known to be unlabelled from an event only.
	maxHints = 4096
	// maxHintsOfPod bounds the sandboxes of each of these pods.
	maxHintsOfPod = 16
)

// unlabelled holds the pods that a list filtered by the kubelet's pod UID label would miss, in
// whole or in part, because sandboxes or containers lack the label (crictl sets labels only on
// request), with the IDs of the sandboxes that find them. Its methods may be called from any
// goroutine.
type unlabelled struct {
	mu     sync.Mutex
	listed map[cache.UID][]string // by listings
	// hinted are known from events since the last listing began, olderHints from earlier events. A
	// hint is dropped when a listing begun after the event has ended: that listing shows the pod, or
	// its absence.
	hinted, olderHints map[cache.UID][]string
}

// set notes the sandboxes by which the last listing found the pod; none if its labels suffice, or
// the pod is gone.
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

// hint notes an event that showed an unlabelled sandbox of the pod.
func (u *unlabelled) hint(uid cache.UID, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.listed[uid], id) || slices.Contains(u.hinted[uid], id) {
		return
	}
	ids, known := u.hinted[uid]
	if !known {
		if len(u.hinted)+len(u.olderHints) >= maxHints {
			return
		}
		ids = u.olderHints[uid]
	}
	if u.hinted == nil {
		u.hinted = make(map[cache.UID][]string)
	}
	if !slices.Contains(ids, id) && len(ids) < maxHintsOfPod {
		ids = append(slices.Clip(ids), id)
	}
	u.hinted[uid] = ids
}

// begin notes the start of a listing.
func (u *unlabelled) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.olderHints == nil {
		u.olderHints = u.hinted
	} else {
		maps.Copy(u.olderHints, u.hinted) // no listing has ended since
	}
	u.hinted = nil
}

// end notes that the last begun listing was complete.
func (u *unlabelled) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.olderHints = nil
}

// sandboxes returns the IDs of the sandboxes by which the pod is found, none if its labels do.
func (u *unlabelled) sandboxes(uid cache.UID) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var ids []string
	for _, known := range []map[cache.UID][]string{u.listed, u.hinted, u.olderHints} {
		ids = append(ids, known[uid]...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
