// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// One listing from its first item to its last: each item is recognised as unchanged, or read and
// attributed to its pod.

import (
	"crypto/sha256"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// index keeps the last listing, so that the next costs little where nothing changed: the few fields
// that matter are read in a single pass (see fastItem), and compared with those of the record.
//
// The holder of Client.listing owns the index. A listing that fails halfway leaves the index partly
// new, which is harmless: every changed pod stays dirty until a listing returns the pod. What such
// a listing was the first to show is forgotten when the next begins.
type index struct {
	sandboxes  map[string]*sandboxRecord
	containers map[string]*containerRecord
	pods       map[cache.UID]*podRecord
	// committed is the round of the last listing that did not fail.
	committed uint32
	// lastSandbox and lastContainer are the records found last. Lists mostly keep their order: while
	// inOrder, the record found after the last one before is tried ahead of the map.
	lastSandbox   *sandboxRecord
	lastContainer *containerRecord
	inOrder       bool
	// dirty holds the pods that may differ from the listing of that revision.
	dirty    []*podRecord
	revision pleg.Revision
	// round counts listings begun, failed ones included. The present listing has shown the records
	// that carry round.
	round uint32
	// shownSandboxes and shownContainers count the records shown by the present listing, unlisted the
	// sandbox records absent from the last.
	shownSandboxes, shownContainers, unlisted int
	// stale: a record was dropped or unlisted since the last sweep, so others may be needed no more.
	stale bool
	// names interns container names.
	names interner
	// excluded holds the filter; set once, by New. Refused counts the pods that it refuses.
	excluded *excluded
	refused  int
	// unattributed are the containers without a known pod.
	unattributed map[*containerRecord]struct{}

	malformed, duplicates, unknownStates uint64 // of the present listing
}

// sandboxRecord is a sandbox of the last listing, or a sandbox named only by unlabelled containers.
type sandboxRecord struct {
	id       string
	metadata string     // encoded, as [remembered]
	label    string     // the pod UID label, as remembered, or empty
	pod      *podRecord // nil until a listing shows the sandbox, then kept for as long as the record
	phase    pleg.Phase
	// listed: the last listing showed the sandbox; labelled: a list filtered by the pod UID label
	// shows it.
	listed, labelled bool
	round            uint32         // the last listing with the sandbox
	made             uint32         // the listing that made the record
	next             *sandboxRecord // found after this one in a listing
	// dependents are the containers attributed by this sandbox, for lack of a pod UID label. Former
	// dependents may remain.
	dependents []*containerRecord
}

// containerRecord is a container of the last listing.
type containerRecord struct {
	id    string
	label string     // the pod UID label, or empty
	pod   *podRecord // nil if unattributed
	// sandbox is set if the container has no pod UID label but a sandbox ID.
	sandbox *sandboxRecord
	name    string // interned
	phase   pleg.Phase
	removed bool
	round   uint32           // the last listing with the container
	made    uint32           // the listing that made the record
	next    *containerRecord // found after this one in a listing
}

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
	// decided: the filter was asked about the pod; bySandbox: with the labels of a sandbox; refused:
	// it refuses the pod; counted: the pod is among index.refused.
	decided, bySandbox, refused, counted bool
}

func newIndex() *index {
	return &index{
		sandboxes:     make(map[string]*sandboxRecord),
		containers:    make(map[string]*containerRecord),
		pods:          make(map[cache.UID]*podRecord),
		unattributed:  make(map[*containerRecord]struct{}),
		lastSandbox:   new(sandboxRecord),
		lastContainer: new(containerRecord),
	}
}

// begin starts a listing.
func (x *index) begin() {
	if x.round != x.committed {
		x.forgetUncommitted()
	}
	x.round++
	x.shownSandboxes = 0
	x.shownContainers = 0
	x.malformed = 0
	x.duplicates = 0
	x.unknownStates = 0
}

// forgetUncommitted forgets what only listings have shown that failed, or lists that always fail
// would fill the memory. No caller has seen any of it.
func (x *index) forgetUncommitted() {
	for _, c := range x.containers {
		if c.made > x.committed {
			x.drop(c)
		}
	}
	for _, s := range x.sandboxes {
		if s.listed && s.made > x.committed {
			x.unlist(s)
		}
	}
	x.dropUnreferenced()
	x.dirty = slices.DeleteFunc(x.dirty, func(p *podRecord) bool {
		if x.pods[p.uid] != p {
			return true // see commit
		}
		p.compact()
		isKept := p.shown || p.counted || len(p.sandboxes)+len(p.containers) > 0
		if !isKept {
			delete(x.pods, p.uid)
			p.forgetDecision()
		}
		p.dirty = isKept
		return !isKept
	})
}

func (x *index) markDirty(p *podRecord) {
	if p != nil && !p.dirty {
		p.dirty = true
		x.dirty = append(x.dirty, p)
	}
}

// ensurePod returns the record of a pod, made if need be. A sandbox's metadata names the pod; the
// labels of a container do so only for a pod without any other name.
func (x *index) ensurePod(uid, name, namespace []byte, of pleg.Kind) *podRecord {
	p := x.pods[cache.UID(uid)] // does not allocate
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

// sandbox takes an item of a sandbox list, and reports false if the item is not a protobuf message.
func (x *index) sandbox(raw []byte) bool {
	var q fastItem
	if q.read(raw, fastSandboxTags) && x.unchangedSandbox(q.id, q.field2, q.uid, sandboxPhase(int32(q.state))) {
		return true
	}
	var item sandboxItem
	if !item.readListed(raw) {
		return false
	}
	switch {
	case !item.usable():
		x.malformed++
	case !x.unchangedSandbox(item.id, item.metaRaw, item.labels.uid, item.phase()):
		x.changedSandbox(&item)
		x.decide(&item, raw)
	}
	return true
}

// decide asks the filter about the pod of a changed sandbox. What was decided without a sandbox, of
// a pod made between the two list calls, is decided anew.
func (x *index) decide(item *sandboxItem, raw []byte) {
	if x.excluded == nil || x.excluded.filter == nil {
		return
	}
	p := x.pods[cache.UID(item.uid())]
	if p.bySandbox {
		return // a pod stays what its first sandbox has made it
	}
	p.decided = true
	p.bySandbox = true
	p.refused = !x.excluded.passes(metaOfSandbox(item, raw, labelsOfPodSandbox))
}

// unchangedSandbox reports whether a sandbox equals the one in the listing before and is new to the
// present listing, and if so, marks it shown.
func (x *index) unchangedSandbox(id, metadata, label []byte, phase pleg.Phase) bool {
	metadata = remembered(metadata)
	label = remembered(label)
	s := x.lastSandbox.next
	if !x.inOrder || s == nil || !s.listed || s.id != string(id) {
		s = x.sandboxes[string(id)] // does not allocate
		x.inOrder = s == x.lastSandbox.next
		x.lastSandbox.next = s
	}
	if s == nil || !s.listed || s.round == x.round || s.phase != phase || s.metadata != string(metadata) || s.label != string(label) {
		return false
	}
	s.round = x.round
	x.lastSandbox = s
	x.shownSandboxes++
	return true
}

// changedSandbox takes a sandbox that differs from the listing before, or was already shown by the
// present listing.
func (x *index) changedSandbox(item *sandboxItem) {
	if !knownSandboxState(item.state) {
		x.unknownStates++
	}
	uid := item.uid()
	labelled := item.labelled()
	phase := item.phase()
	s := x.sandboxes[string(item.id)]
	if s == nil {
		s = &sandboxRecord{id: string(item.id), made: x.round}
		x.sandboxes[s.id] = s
		x.unlisted++
	}
	if s.listed && s.round == x.round {
		x.duplicates++
		if s.phase >= phase && s.labelled == labelled && string(s.pod.uid) == string(uid) {
			return
		}
		phase = max(phase, s.phase)
	} else {
		x.shownSandboxes++
	}
	replace(&s.metadata, remembered(item.metaRaw))
	if !s.listed {
		s.listed = true
		x.unlisted--
		if s.pod != nil {
			s.pod.sandboxes = append(s.pod.sandboxes, s)
		}
		if c := x.containers[s.id]; c != nil {
			if c.round == x.round { // a second list of the sandboxes comes after that of the containers
				x.shownContainers--
			}
			x.drop(c) // an ID is a sandbox's or a container's: the sandbox stands
		}
	}
	s.phase = phase
	s.labelled = labelled
	s.round = x.round
	pod := x.ensurePod(uid, item.meta.name, item.meta.namespace, pleg.Sandbox)
	replaceLabel(&s.label, remembered(item.labels.uid), pod)
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

// container takes an item of a container list, and reports false if the item is not a protobuf
// message.
func (x *index) container(raw []byte) bool {
	var q fastItem
	if q.read(raw, fastContainerTags) {
		phase := criphase.OfContainer(runtimeapi.ContainerState(q.state))
		if x.unchangedContainer(q.id, q.field2, q.uid, phase) {
			return true
		}
	}
	var item containerItem
	if !item.readListed(raw) {
		return false
	}
	switch {
	case !item.usable():
		x.malformed++
	case !x.unchangedContainer(item.id, item.sandbox, item.labels.uid, item.phase()):
		x.changedContainer(&item)
	}
	return true
}

// unchangedContainer is unchangedSandbox for a container.
func (x *index) unchangedContainer(id, sandbox, label []byte, phase pleg.Phase) bool {
	c := x.lastContainer.next
	if !x.inOrder || c == nil || c.removed || c.id != string(id) {
		c = x.containers[string(id)] // does not allocate
		x.inOrder = c == x.lastContainer.next
		x.lastContainer.next = c
	}
	if c == nil || c.round == x.round || c.phase != phase || !c.attributedAs(sandbox, label) {
		return false
	}
	c.round = x.round
	x.lastContainer = c
	x.shownContainers++
	return true
}

// changedContainer takes a container that differs from the listing before, or was already shown by
// the present listing.
func (x *index) changedContainer(item *containerItem) {
	if s := x.sandboxes[string(item.id)]; s != nil && s.listed {
		if s.round == x.round {
			x.duplicates++ // an ID is a sandbox's or a container's: the sandbox stands
			return
		}
		x.unlist(s) // not left to the sweep: a listing that fails has none
	}
	if !knownContainerState(item.state) {
		x.unknownStates++
	}
	phase := item.phase()
	c := x.containers[string(item.id)]
	if c == nil {
		c = &containerRecord{id: string(item.id), made: x.round}
		x.containers[c.id] = c
	}
	if c.round == x.round {
		x.duplicates++
		if c.phase >= phase && c.attributedAs(item.sandbox, item.labels.uid) {
			return
		}
		phase = max(phase, c.phase)
	} else {
		x.shownContainers++
	}
	c.phase = phase
	c.name = x.names.internName(item.name)
	c.round = x.round
	x.markDirty(c.pod)
	if len(item.labels.uid) > 0 {
		pod := x.ensurePod(item.labels.uid, item.labels.name, item.labels.namespace, pleg.Container)
		replaceLabel(&c.label, item.labels.uid, pod)
		x.leaveSandbox(c)
		x.attribute(c, pod)
		return
	}
	c.label = ""
	x.attribute(c, x.podBySandbox(c, item.sandbox))
}

// podBySandbox notes the sandbox of a container without a pod UID label, and returns the sandbox's
// pod, nil if no listing has shown the sandbox.
func (x *index) podBySandbox(c *containerRecord, sandbox []byte) *podRecord {
	if !validID(sandbox) {
		x.leaveSandbox(c)
		return nil
	}
	s := x.sandboxes[string(sandbox)]
	if s == nil {
		s = &sandboxRecord{id: string(sandbox), made: x.round}
		x.sandboxes[s.id] = s
		x.unlisted++
	}
	if c.sandbox != s {
		x.leaveSandbox(c)
		c.sandbox = s
		s.dependents = append(s.dependents, c)
	}
	if s.pod == nil {
		return nil
	}
	s.pod = x.currentPod(s.pod)
	return s.pod
}

// leaveSandbox makes a container no sandbox's, if it was any's.
func (x *index) leaveSandbox(c *containerRecord) {
	if c.sandbox != nil {
		c.sandbox = nil
		x.stale = true
	}
}

// attributedAs reports whether a container with this sandbox and this pod UID label is attributed
// as the record is.
func (c *containerRecord) attributedAs(sandbox, label []byte) bool {
	switch {
	case c.label != string(label):
		return false
	case c.label != "":
		return true
	case c.sandbox == nil:
		return !validID(sandbox)
	}
	return c.sandbox.id == string(sandbox)
}

// remembered returns what is kept of a text to compare later ones with: the text, or the digest of
// one longer than any of a real runtime.
func remembered(text []byte) []byte {
	if len(text) <= maxText {
		return text
	}
	return digestOf(text)
}

func digestOf(text []byte) []byte {
	digest := sha256.Sum256(text)
	return append([]byte("sha256:"), digest[:]...)
}

// replace sets s to b, and allocates only for a difference.
func replace(s *string, b []byte) {
	if *s != string(b) {
		*s = string(b)
	}
}

// replaceLabel sets a label to b. Most name the pod, and share its UID: a copy in each record took
// 72 bytes a container.
func replaceLabel(label *string, b []byte, pod *podRecord) {
	if string(pod.uid) == string(b) {
		*label = string(pod.uid)
		return
	}
	replace(label, b)
}

// drop removes a container.
func (x *index) drop(c *containerRecord) {
	c.removed = true
	c.next = nil
	x.stale = true
	delete(x.containers, c.id)
	delete(x.unattributed, c)
	x.markDirty(c.pod)
}

// unlist notes that a sandbox is listed no more.
func (x *index) unlist(s *sandboxRecord) {
	s.listed = false
	s.next = nil
	x.stale = true
	x.unlisted++
	x.markDirty(s.pod)
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
