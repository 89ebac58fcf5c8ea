// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"strings"
	"unicode/utf8"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// index is what the last listing showed, kept so that the next one costs little where nothing changed: an item is found by its ID, and
// found unchanged by comparing, byte by byte, the few things that a listing tells of it. Nothing is decoded, copied or hashed beyond the
// ID. (A hash over the whole item would not do: runtimes send the entries of a label map in random order.)
//
// The holder of Client.listing owns it. A listing that fails halfway leaves it partly new. That is harmless: every pod that differs stays
// marked until a listing hands it out.
type index struct {
	sandboxes  map[string]*sandboxRecord
	containers map[string]*containerRecord
	pods       map[cache.UID]*podRecord
	// dirty holds the pods that may differ from the listing named by revision.
	dirty    []*podRecord
	revision pleg.Revision
	// round counts listings begun, failed ones included; a record that does not carry it was not shown by the present one.
	round uint32
	// shown counts the records that carry round, hidden the sandbox records that no listing shows.
	shownSandboxes, shownContainers, hidden int
	// strays are the containers that could not be attributed.
	strays map[*containerRecord]struct{}

	malformed, duplicates uint64 // of the present listing
}

// sandboxRecord is a sandbox that the last listing showed, or one that only unlabelled containers refer to.
type sandboxRecord struct {
	// id and uid, the pod's, lie side by side in memory, as they are compared.
	id, uid string
	pod     *podRecord // nil until a listing shows the sandbox, then kept for as long as the record
	phase   pleg.Phase
	// listed says that the last listing showed it; labelled, that a list filtered by the pod UID label does.
	listed, labelled bool
	round            uint32
	// dependents are the containers that have no pod UID label and so are attributed by this sandbox. Former ones may remain.
	dependents []*containerRecord
}

// containerRecord is a container that the last listing showed.
type containerRecord struct {
	// id and label, the pod UID label or empty, lie side by side in memory, as they are compared.
	id, label string
	pod       *podRecord // nil for a stray
	// sandbox is set if the container has no pod UID label, and names one.
	sandbox *sandboxRecord
	phase   pleg.Phase
	removed bool
	round   uint32
}

// podRecord is a pod that the last listing showed.
type podRecord struct {
	uid             cache.UID
	name, namespace string
	// sandboxes and containers may hold records that are gone or belong to another pod now, until the pod is built.
	sandboxes  []*sandboxRecord
	containers []*containerRecord
	// dirty says that the pod is in index.dirty; shown, that the caller has seen it; byID, that the pod UID label does not find all of it.
	dirty, shown, byID bool
}

func newIndex() *index {
	return &index{
		sandboxes:  make(map[string]*sandboxRecord),
		containers: make(map[string]*containerRecord),
		pods:       make(map[cache.UID]*podRecord),
		strays:     make(map[*containerRecord]struct{}),
	}
}

// begin starts a listing.
func (x *index) begin() {
	x.round++
	x.shownSandboxes, x.shownContainers = 0, 0
	x.malformed, x.duplicates = 0, 0
}

func (x *index) mark(p *podRecord) {
	if p != nil && !p.dirty {
		p.dirty = true
		x.dirty = append(x.dirty, p)
	}
}

// pod returns the record of a pod, made if need be. It fills in the names if they are not known.
func (x *index) pod(uid string, name, namespace []byte) *podRecord {
	p := x.pods[cache.UID(uid)]
	if p == nil {
		p = &podRecord{uid: cache.UID(uid)}
		x.pods[p.uid] = p
	}
	if p.name == "" && len(name) > 0 {
		p.name = valid(name)
		x.mark(p)
	}
	if p.namespace == "" && len(namespace) > 0 {
		p.namespace = valid(namespace)
		x.mark(p)
	}
	return p
}

// current returns the record of the pod that p once was the record of. A sandbox that is not listed any more may hold a dropped one.
func (x *index) current(p *podRecord) *podRecord {
	if now := x.pods[p.uid]; now != nil {
		return now
	}
	x.pods[p.uid] = p
	return p
}

// valid returns text as a string of valid UTF-8.
func valid(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

// maxID bounds the length of an ID or UID. Those of real runtimes have 64 bytes or fewer.
const maxID = 1024

// usable reports whether an ID or UID can be used: a request with one that is not UTF-8 could not be sent.
func usable(id []byte) bool { return len(id) > 0 && len(id) <= maxID && utf8.Valid(id) }

// sandbox takes one item of a sandbox list. It reports false if the item is not a protobuf message.
func (x *index) sandbox(raw []byte) bool {
	var item sandboxItem
	if !item.read(raw, labelsOfPodSandbox) {
		return false
	}
	uid, labelled, phase := item.uid(), item.labelled(), item.phase()
	s := x.sandboxes[string(item.id)]
	if s != nil && s.listed && s.round != x.round && s.phase == phase && s.labelled == labelled && s.uid == string(uid) {
		s.round = x.round
		x.shownSandboxes++
		return true
	}
	if !usable(item.id) || !usable(uid) {
		x.malformed++
		return true
	}
	if s == nil {
		s = &sandboxRecord{}
		s.id, s.uid = together(item.id, uid)
		x.sandboxes[s.id] = s
		x.hidden++
	}
	if s.round == x.round {
		x.duplicates++
		if phase = max(phase, s.phase); s.phase == phase && s.labelled == labelled && s.uid == string(uid) {
			return true
		}
	} else {
		s.round = x.round
		x.shownSandboxes++
	}
	if !s.listed {
		s.listed = true
		x.hidden--
		if s.pod != nil {
			s.pod.sandboxes = append(s.pod.sandboxes, s)
		}
	}
	s.phase, s.labelled = phase, labelled
	if s.uid != string(uid) {
		s.uid = string(uid)
	}
	p := x.pod(s.uid, item.meta.name, item.meta.namespace)
	x.mark(p)
	if s.pod != p {
		x.mark(s.pod)
		s.pod = p
		p.sandboxes = append(p.sandboxes, s)
		for _, c := range s.dependents {
			if c.sandbox == s {
				x.attribute(c, p)
			}
		}
	}
	return true
}

// container takes one item of a container list. It reports false if the item is not a protobuf message.
func (x *index) container(raw []byte) bool {
	var item containerItem
	if !item.readListed(raw) {
		return false
	}
	phase := item.phase()
	c := x.containers[string(item.id)]
	if c != nil && c.round != x.round && c.phase == phase && c.belongs(&item) {
		c.round = x.round
		x.shownContainers++
		return true
	}
	if !usable(item.id) || len(item.labels.uid) > 0 && !utf8.Valid(item.labels.uid) {
		x.malformed++
		return true
	}
	if c == nil {
		c = &containerRecord{}
		c.id, c.label = together(item.id, item.labels.uid)
		x.containers[c.id] = c
	}
	if c.round == x.round {
		x.duplicates++
		if phase = max(phase, c.phase); c.phase == phase && c.belongs(&item) {
			return true
		}
	} else {
		c.round = x.round
		x.shownContainers++
	}
	c.phase = phase
	if c.label != string(item.labels.uid) {
		c.label = string(item.labels.uid)
	}
	x.mark(c.pod)
	if len(item.labels.uid) > 0 {
		c.sandbox = nil
		x.attribute(c, x.pod(c.label, item.labels.name, item.labels.namespace))
		return true
	}
	var p *podRecord
	if len(item.sandbox) > 0 && utf8.Valid(item.sandbox) {
		s := x.sandboxes[string(item.sandbox)]
		if s == nil {
			s = &sandboxRecord{id: string(item.sandbox)}
			x.sandboxes[s.id] = s
			x.hidden++
		}
		if c.sandbox != s {
			c.sandbox = s
			s.dependents = append(s.dependents, c)
		}
		if s.pod != nil {
			s.pod = x.current(s.pod)
			p = s.pod
		}
	} else {
		c.sandbox = nil
	}
	x.attribute(c, p)
	return true
}

// belongs reports whether the item is attributed as the record is.
func (c *containerRecord) belongs(item *containerItem) bool {
	switch {
	case c.label != string(item.labels.uid):
		return false
	case c.label != "":
		return true
	case c.sandbox == nil:
		return len(item.sandbox) == 0
	}
	return c.sandbox.id == string(item.sandbox)
}

// together returns two strings that share one piece of memory.
func together(a, b []byte) (string, string) {
	both := string(a) + string(b)
	return both[:len(a)], both[len(a):]
}

// attribute makes a container one of p's, or, with nil, a stray.
func (x *index) attribute(c *containerRecord, p *podRecord) {
	if c.removed {
		return
	}
	if p == nil {
		x.strays[c] = struct{}{}
	} else {
		delete(x.strays, c)
	}
	x.mark(c.pod)
	x.mark(p)
	if c.pod != p {
		c.pod = p
		if p != nil {
			p.containers = append(p.containers, c)
		}
	}
}
