// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// One listing from its first item to its last: each item is recognised as unchanged by its
// fingerprint, or read and attributed to its pod.

import (
	"google.golang.org/grpc/mem"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// index keeps the last listing, so that the next costs little where nothing changed: an unchanged
// item is found by the fingerprint of its few relevant fields (see fingerprintTable), which are
// read in a single pass (see fastItem). Only an item without a known fingerprint is parsed fully,
// and looked up by its ID. (A hash over the whole item would not do: runtimes send the entries of a
// label map in random order.)
//
// The holder of Client.listing owns the index. A listing that fails halfway leaves the index partly
// new, which is harmless: every changed pod stays dirty until a listing returns the pod.
type index struct {
	sandboxes  map[string]*sandboxRecord
	containers map[string]*containerRecord
	pods       map[cache.UID]*podRecord
	// dirty holds the pods that may differ from the listing of that revision.
	dirty    []*podRecord
	revision pleg.Revision
	// round counts listings begun, failed ones included. The present listing has not shown a record
	// whose entry does not carry round, unless all were shown (fingerprintTable.allShownBy).
	round uint32
	// shownSandboxes and shownContainers count the records shown by the present listing, unlisted the
	// sandbox records absent from the last.
	shownSandboxes, shownContainers, unlisted int
	// hasher makes the fingerprints; the tables hold an entry for each record of the last listing.
	hasher         hasher
	sandboxTable   fingerprintTable[*sandboxRecord]
	containerTable fingerprintTable[*containerRecord]
	// names interns container names.
	names interner
	// unattributed are the containers without a known pod.
	unattributed map[*containerRecord]struct{}

	malformed, duplicates, unknownStates uint64 // of the present listing
}

// sandboxRecord is a sandbox of the last listing, or a sandbox named only by unlabelled containers.
type sandboxRecord struct {
	// id and uid, the pod's, lie side by side in memory, as they are compared.
	id, uid string
	pod     *podRecord // nil until a listing shows the sandbox, then kept for as long as the record
	phase   pleg.Phase
	// listed: the last listing showed the sandbox; labelled: a list filtered by the pod UID label
	// shows it.
	listed, labelled bool
	// place of the record's entry in index.sandboxTable; only a listed record has an entry.
	place int32
	// dependents are the containers attributed by this sandbox, for lack of a pod UID label. Former
	// dependents may remain.
	dependents []*containerRecord
}

// containerRecord is a container of the last listing.
type containerRecord struct {
	// id and label, the pod UID label or empty, lie side by side in memory, as they are compared.
	id, label string
	pod       *podRecord // nil if unattributed
	// sandbox is set if the container has no pod UID label but a sandbox ID.
	sandbox *sandboxRecord
	name    string // interned
	phase   pleg.Phase
	removed bool
	// place of the record's entry in index.containerTable.
	place int32
}

func (s *sandboxRecord) setPlace(place int)   { s.place = int32(place) }
func (c *containerRecord) setPlace(place int) { c.place = int32(place) }

// podRecord is a pod of the last listing.
type podRecord struct {
	uid             cache.UID
	name, namespace string
	// sandboxes and containers may hold records that are gone or now another pod's, until the pod is
	// built.
	sandboxes  []*sandboxRecord
	containers []*containerRecord
	// dirty: the pod is in index.dirty; shown: the caller has seen the pod; unlabelled: the pod UID
	// label does not find all of the pod.
	dirty, shown, unlabelled bool
}

func newIndex() *index {
	return &index{
		sandboxes:    make(map[string]*sandboxRecord),
		containers:   make(map[string]*containerRecord),
		pods:         make(map[cache.UID]*podRecord),
		unattributed: make(map[*containerRecord]struct{}),
		hasher:       newHasher(),
	}
}

// begin starts a listing.
func (x *index) begin() {
	x.round++
	x.shownSandboxes, x.shownContainers = 0, 0
	x.malformed, x.duplicates, x.unknownStates = 0, 0, 0
	x.sandboxTable.begin()
	x.containerTable.begin()
}

func (x *index) markDirty(p *podRecord) {
	if p != nil && !p.dirty {
		p.dirty = true
		x.dirty = append(x.dirty, p)
	}
}

// ensurePod returns the record of a pod, made if need be. A sandbox's metadata names the pod; the
// labels of a container do so only for a pod without any other name.
func (x *index) ensurePod(uid string, name, namespace []byte, of pleg.Kind) *podRecord {
	p := x.pods[cache.UID(uid)]
	if p == nil {
		p = &podRecord{uid: cache.UID(uid)}
		x.pods[p.uid] = p
	}
	set := func(is *string, told []byte) {
		if len(told) > 0 && (*is == "" || of == pleg.Sandbox && *is != string(told)) {
			*is = truncate(string(told))
			x.markDirty(p)
		}
	}
	set(&p.name, name)
	set(&p.namespace, namespace)
	return p
}

// currentPod returns the present record of p's pod. A sandbox that is no longer listed may hold a
// dropped record.
func (x *index) currentPod(p *podRecord) *podRecord {
	if now := x.pods[p.uid]; now != nil {
		return now
	}
	x.pods[p.uid] = p
	return p
}

// unchangedSandboxes reports whether a whole list of sandboxes equals the list before, and if so,
// marks the sandboxes shown. Otherwise the list must be taken item by item.
func (x *index) unchangedSandboxes(w *segments, list mem.BufferSlice) bool {
	n, same := x.sandboxTable.markAllShown(w, list, x.hasher.fastSandbox, x.round)
	if same {
		x.shownSandboxes = n
	}
	return same
}

// sandbox takes an item of a sandbox list, and reports false if the item is not a protobuf message.
func (x *index) sandbox(raw []byte) bool {
	if p, ok := x.hasher.fastSandbox(raw); ok && x.sandboxTable.markShown(p, x.round) {
		x.shownSandboxes++
		return true
	}
	var item sandboxItem
	if !item.readListed(raw) {
		return false
	}
	if !item.usable() {
		x.malformed++
		return true
	}
	if x.sandboxTable.markShown(x.hasher.sandbox(item.id, item.metaRaw, item.labels.uid, item.state), x.round) {
		x.shownSandboxes++
		return true
	}
	x.changedSandbox(&item)
	return true
}

// changedSandbox takes a sandbox that differs from the listing before, or was already shown by the
// present listing.
func (x *index) changedSandbox(item *sandboxItem) {
	if !knownSandboxState(item.state) {
		x.unknownStates++
	}
	uid, labelled, state := item.uid(), item.labelled(), item.state
	s := x.sandboxes[string(item.id)]
	if s == nil {
		s = &sandboxRecord{place: -1}
		s.id, s.uid = joined(item.id, uid)
		x.sandboxes[s.id] = s
		x.unlisted++
	}
	duplicate := s.listed && x.sandboxTable.shown(int(s.place), x.round)
	if duplicate {
		x.duplicates++
		if s.phase > item.phase() {
			state = stateOfSandbox(s.phase)
		}
		if s.phase >= item.phase() && s.labelled == labelled && s.uid == string(uid) {
			return
		}
	}
	p := x.hasher.sandbox(item.id, item.metaRaw, item.labels.uid, state)
	if !s.listed {
		s.listed = true
		x.unlisted--
		if s.pod != nil {
			s.pod.sandboxes = append(s.pod.sandboxes, s)
		}
		x.sandboxTable.add(p, s, x.round)
		x.displaceContainer(s)
	} else {
		x.sandboxTable.change(int(s.place), p)
		x.sandboxTable.entries[s.place].round = x.round
	}
	if !duplicate {
		x.shownSandboxes++
	}
	s.phase, s.labelled = sandboxPhase(state), labelled
	if s.uid != string(uid) {
		s.uid = string(uid)
	}
	pod := x.ensurePod(s.uid, item.meta.name, item.meta.namespace, pleg.Sandbox)
	x.markDirty(pod)
	if s.pod != pod {
		x.markDirty(s.pod)
		s.pod = pod
		pod.sandboxes = append(pod.sandboxes, s)
		for _, c := range s.dependents {
			if c.sandbox == s {
				x.attribute(c, pod)
			}
		}
	}
}

// unchangedContainers is unchangedSandboxes for a list of containers.
func (x *index) unchangedContainers(w *segments, list mem.BufferSlice) bool {
	n, same := x.containerTable.markAllShown(w, list, x.hasher.fastContainer, x.round)
	if same {
		x.shownContainers = n
	}
	return same
}

// container takes an item of a container list, and reports false if the item is not a protobuf
// message.
func (x *index) container(raw []byte) bool {
	if p, ok := x.hasher.fastContainer(raw); ok && x.containerTable.markShown(p, x.round) {
		x.shownContainers++
		return true
	}
	var item containerItem
	if !item.readListed(raw) {
		return false
	}
	if !item.usable() {
		x.malformed++
		return true
	}
	if x.containerTable.markShown(x.hasher.container(item.id, item.sandbox, item.labels.uid, item.state), x.round) {
		x.shownContainers++
		return true
	}
	x.changedContainer(&item)
	return true
}

// changedContainer takes a container that differs from the listing before, or was already shown by
// the present listing.
func (x *index) changedContainer(item *containerItem) {
	if s := x.sandboxes[string(item.id)]; s != nil && s.listed && x.sandboxTable.shown(int(s.place), x.round) {
		x.duplicates++ // an ID is a sandbox's or a container's: the sandbox stands
		return
	}
	if !knownContainerState(item.state) {
		x.unknownStates++
	}
	phase, state := item.phase(), item.state
	c := x.containers[string(item.id)]
	if c != nil && x.containerTable.shown(int(c.place), x.round) {
		x.duplicates++
		if c.phase > phase {
			phase, state = c.phase, stateOfContainer(c.phase)
		}
		if c.phase == phase && c.attributedAs(item) {
			return
		}
	} else {
		x.shownContainers++
	}
	p := x.hasher.container(item.id, item.sandbox, item.labels.uid, state)
	if c == nil {
		c = &containerRecord{}
		c.id, c.label = joined(item.id, item.labels.uid)
		x.containers[c.id] = c
		x.containerTable.add(p, c, x.round)
	} else {
		x.containerTable.change(int(c.place), p)
		x.containerTable.entries[c.place].round = x.round
	}
	c.phase, c.name = phase, x.names.internName(item.name)
	if c.label != string(item.labels.uid) {
		c.label = string(item.labels.uid)
	}
	x.markDirty(c.pod)
	if len(item.labels.uid) > 0 {
		c.sandbox = nil
		x.attribute(c, x.ensurePod(c.label, item.labels.name, item.labels.namespace, pleg.Container))
		return
	}
	x.attribute(c, x.podBySandbox(c, item.sandbox))
}

// podBySandbox notes the sandbox of a container without a pod UID label, and returns the sandbox's
// pod, nil if no listing has shown the sandbox.
func (x *index) podBySandbox(c *containerRecord, sandbox []byte) *podRecord {
	if !validID(sandbox) {
		c.sandbox = nil
		return nil
	}
	s := x.sandboxes[string(sandbox)]
	if s == nil {
		s = &sandboxRecord{id: string(sandbox), place: -1}
		x.sandboxes[s.id] = s
		x.unlisted++
	}
	if c.sandbox != s {
		c.sandbox = s
		s.dependents = append(s.dependents, c)
	}
	if s.pod == nil {
		return nil
	}
	s.pod = x.currentPod(s.pod)
	return s.pod
}

// displaceContainer gives the ID of a container to a newly listed sandbox with the same ID: the
// next listing of containers parses the container fully.
func (x *index) displaceContainer(s *sandboxRecord) {
	if c := x.containers[s.id]; c != nil {
		x.containerTable.change(int(c.place), fingerprint{})
	}
}

// attributedAs reports whether the item is attributed as the record is.
func (c *containerRecord) attributedAs(item *containerItem) bool {
	switch {
	case c.label != string(item.labels.uid):
		return false
	case c.label != "":
		return true
	case c.sandbox == nil:
		return !validID(item.sandbox)
	}
	return c.sandbox.id == string(item.sandbox)
}

// joined returns two strings that share an allocation.
func joined(a, b []byte) (string, string) {
	both := string(a) + string(b)
	return both[:len(a)], both[len(a):]
}

// attribute makes a container p's, or unattributed if p is nil.
func (x *index) attribute(c *containerRecord, p *podRecord) {
	if c.removed {
		return
	}
	if p == nil {
		x.unattributed[c] = struct{}{}
	} else {
		delete(x.unattributed, c)
	}
	x.markDirty(c.pod)
	x.markDirty(p)
	if c.pod != p {
		c.pod = p
		if p != nil {
			p.containers = append(p.containers, c)
		}
	}
}
