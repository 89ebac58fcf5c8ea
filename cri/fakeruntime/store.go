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
	sandboxes  items[*sandbox]
	containers items[*container]
	// pods is by UID: the UIDs of the sandbox's metadata, and of the labels. They are the same
	// unless a client chose otherwise.
	pods map[string]*pod
}

// pod is the store's content for a UID.
type pod struct {
	uid       string
	sandboxes []*sandbox   // with this UID in the metadata, oldest first
	labelledS []*sandbox   // with this UID in the labels
	labelledC []*container // with this UID in the labels
	attempts  uint32       // attempt of the next sandbox
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
	s.sandboxes.add(sb)
	p := s.pod(sb.uid)
	l := s.pod(sb.labelUID)
	p.sandboxes = append(p.sandboxes, sb)
	p.attempts = max(p.attempts, sb.attempt+1)
	l.labelledS = append(l.labelledS, sb)
}

func (s *store) removeSandbox(sb *sandbox) {
	s.sandboxes.remove(sb)
	p := s.pod(sb.uid)
	l := s.pod(sb.labelUID)
	p.sandboxes = without(p.sandboxes, sb)
	l.labelledS = without(l.labelledS, sb)
	s.forget(sb.uid)
	s.forget(sb.labelUID)
}

func (s *store) addContainer(c *container) {
	s.containers.add(c)
	c.sb.containers = append(c.sb.containers, c)
	l := s.pod(c.labelUID)
	l.labelledC = append(l.labelledC, c)
}

func (s *store) removeContainer(c *container) {
	s.containers.remove(c)
	c.sb.containers = without(c.sb.containers, c)
	l := s.pod(c.labelUID)
	l.labelledC = without(l.labelledC, c)
	s.forget(c.labelUID)
}

// without removes x from a short list and keeps the order.
func without[T comparable](list []T, x T) []T {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// items are the sandboxes or the containers, by ID and in a list, which has no particular order but
// the same for the same history.
type items[T interface{ ident() string }] struct {
	list  []T
	place map[string]int // of an ID in the list
}

func (s *items[T]) get(id string) (item T, ok bool) {
	place, ok := s.place[id]
	if ok {
		item = s.list[place]
	}
	return item, ok
}

func (s *items[T]) add(item T) {
	if s.place == nil {
		s.place = map[string]int{}
	}
	s.place[item.ident()] = len(s.list)
	s.list = append(s.list, item)
}

// remove lets the last item take the place of the removed one.
func (s *items[T]) remove(item T) {
	end := len(s.list) - 1
	place := s.place[item.ident()]
	last := s.list[end]
	s.list[place] = last
	s.place[last.ident()] = place
	s.list = slices.Delete(s.list, end, end+1)
	delete(s.place, item.ident())
}

// find looks up an ID, or the only ID with the prefix when the runtime resolves short IDs.
func (s *items[T]) find(id string, short bool) (found T, ok, ambiguous bool) {
	found, ok = s.get(id)
	if ok || !short || id == "" || len(id) >= idLength {
		return found, ok, false
	}
	for _, item := range s.list {
		if strings.HasPrefix(item.ident(), id) {
			if ok {
				return found, false, true
			}
			found = item
			ok = true
		}
	}
	return found, ok, false
}

const idLength = 64
