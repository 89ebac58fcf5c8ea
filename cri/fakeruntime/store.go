// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"
	"strings"
)

// Labels by which runtimes and clients assign items to pods.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
)

// store holds the sandboxes and containers and finds them by ID, by pod and by label. The runtime's
// mutex guards it.
type store struct {
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// pods is by UID: the UIDs of the sandbox's metadata, and of the labels. They are the same
	// unless a client chose otherwise.
	pods map[string]*pod
	// The lists are in no particular order but the same for the same history; the items know their
	// place.
	sandboxList   []*sandbox
	containerList []*container
}

// pod is the store's content for a UID.
type pod struct {
	uid       string
	sandboxes []*sandbox   // with this UID in the metadata, oldest first
	labelledS []*sandbox   // with this UID in the labels
	labelledC []*container // with this UID in the labels
	attempts  uint32       // attempt of the next sandbox
}

func (s *store) init() {
	s.sandboxes = map[string]*sandbox{}
	s.containers = map[string]*container{}
	s.pods = map[string]*pod{}
}

func (s *store) pod(uid string) *pod {
	p := s.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		s.pods[uid] = p
	}
	return p
}

// forget drops an unreferenced pod, so that memory follows the live objects.
func (s *store) forget(uid string) {
	if p := s.pods[uid]; p != nil && len(p.sandboxes)+len(p.labelledS)+len(p.labelledC) == 0 {
		delete(s.pods, uid)
	}
}

func (s *store) addSandbox(sb *sandbox) {
	s.sandboxes[sb.id] = sb
	sb.place = len(s.sandboxList)
	s.sandboxList = append(s.sandboxList, sb)
	p := s.pod(sb.uid)
	p.sandboxes = append(p.sandboxes, sb)
	p.attempts = max(p.attempts, sb.attempt+1)
	if sb.labelUID != "" {
		p = s.pod(sb.labelUID)
		p.labelledS = append(p.labelledS, sb)
	}
}

func (s *store) removeSandbox(sb *sandbox) {
	delete(s.sandboxes, sb.id)
	last := s.sandboxList[len(s.sandboxList)-1]
	last.place = sb.place
	s.sandboxList = replaceByLast(s.sandboxList, sb.place)
	p := s.pod(sb.uid)
	p.sandboxes = without(p.sandboxes, sb)
	if sb.labelUID != "" {
		l := s.pod(sb.labelUID)
		l.labelledS = without(l.labelledS, sb)
		s.forget(sb.labelUID)
	}
	s.forget(sb.uid)
}

func (s *store) addContainer(c *container) {
	s.containers[c.id] = c
	c.place = len(s.containerList)
	s.containerList = append(s.containerList, c)
	c.sb.containers = append(c.sb.containers, c)
	if c.labelUID != "" {
		p := s.pod(c.labelUID)
		p.labelledC = append(p.labelledC, c)
	}
}

func (s *store) removeContainer(c *container) {
	delete(s.containers, c.id)
	last := s.containerList[len(s.containerList)-1]
	last.place = c.place
	s.containerList = replaceByLast(s.containerList, c.place)
	c.sb.containers = without(c.sb.containers, c)
	if c.labelUID != "" {
		p := s.pod(c.labelUID)
		p.labelledC = without(p.labelledC, c)
		s.forget(c.labelUID)
	}
}

// replaceByLast removes an element of a long list; the last one takes its place.
func replaceByLast[T any](list []T, place int) []T {
	list[place] = list[len(list)-1]
	return slices.Delete(list, len(list)-1, len(list))
}

// without removes x from a short list and keeps the order.
func without[T comparable](list []T, x T) []T {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// find looks up an ID, or the only ID with the prefix when the runtime resolves short IDs.
func find[T any](m map[string]T, id string, short bool) (found T, ok, ambiguous bool) {
	if found, ok = m[id]; ok || !short || id == "" || len(id) >= idLength {
		return found, ok, false
	}
	for full, v := range m {
		if strings.HasPrefix(full, id) {
			if ok {
				return found, false, true
			}
			found, ok = v, true
		}
	}
	return found, ok, false
}

const idLength = 64
