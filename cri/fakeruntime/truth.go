// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Truth is the runtime's actual state, unaffected by faults.
type Truth struct {
	// Time is the moment, with a monotonic reading. Changes before it are those of [Runtime.History]
	// with Seq < Next.
	Time time.Time
	Next uint64
	// Pods are sorted by UID.
	Pods []TruthPod
	// Leftovers are the IDs of removed containers that lists show all the same.
	Leftovers []string
}

// TruthPod is a pod: the sandboxes with its UID in their metadata, oldest first.
type TruthPod struct {
	UID       string
	Name      string
	Namespace string
	Sandboxes []TruthSandbox
}

// TruthSandbox is a sandbox with its containers, oldest first.
type TruthSandbox struct {
	ID      string
	Attempt uint32
	State   State
	IP      string
	// Removing: its DELETED event was sent, and it leaves the lists within Profile.DeleteLag.
	Removing bool
	// Bare: it has lost its metadata.
	Bare       bool
	Containers []TruthContainer
}

// TruthContainer is a container. Stamps are those of the runtime's clock, in nanoseconds.
type TruthContainer struct {
	ID         string
	Name       string
	Attempt    uint32
	State      State
	ExitCode   int32
	Reason     string
	CreatedAt  int64
	StartedAt  int64
	FinishedAt int64
	// Unreadable: its status fails, never answers, or has no creation time.
	Unreadable bool
}

// Truth returns the state of all pods at a moment.
func (rt *Runtime) Truth() Truth {
	rt.lock()
	defer rt.mu.Unlock()
	t := Truth{Time: time.Now(), Next: rt.history.next(), Pods: make([]TruthPod, 0, len(rt.store.pods))}
	for _, p := range rt.store.pods {
		if len(p.sandboxes) > 0 {
			t.Pods = append(t.Pods, rt.truth(p))
		}
	}
	for _, c := range rt.leftovers {
		t.Leftovers = append(t.Leftovers, c.id)
	}
	slices.SortFunc(t.Pods, func(a, b TruthPod) int { return strings.Compare(a.UID, b.UID) })
	return t
}

// PodTruth returns a pod; ok is false without a sandbox.
func (rt *Runtime) PodTruth(uid string) (pod TruthPod, ok bool) {
	rt.lock()
	defer rt.mu.Unlock()
	p := rt.store.pods[uid]
	if p == nil || len(p.sandboxes) == 0 {
		return TruthPod{}, false
	}
	return rt.truth(p), true
}

// truth returns a pod. The caller holds the mutex.
func (rt *Runtime) truth(p *pod) TruthPod {
	first := p.sandboxes[0]
	t := TruthPod{UID: p.uid, Name: first.name, Namespace: first.namespace}
	for _, sb := range p.sandboxes {
		s := TruthSandbox{
			ID:       sb.id,
			Attempt:  sb.attempt,
			State:    sb.state,
			IP:       sb.ip,
			Removing: sb.removing,
			Bare:     sb.bare,
		}
		for _, c := range sb.containers {
			s.Containers = append(s.Containers, TruthContainer{
				ID:         c.id,
				Name:       c.name,
				Attempt:    c.attempt,
				State:      c.state,
				ExitCode:   c.exitCode,
				Reason:     c.reason,
				CreatedAt:  c.createdAt,
				StartedAt:  c.startedAt,
				FinishedAt: c.finishedAt,
				Unreadable: rt.unreadable(c.id) || c.createdAt == 0,
			})
		}
		t.Sandboxes = append(t.Sandboxes, s)
	}
	return t
}

// Stats are counters since [New], of the runtime's side, not a client's.
type Stats struct {
	// RPCs counts calls by method, such as "ListContainers", as they arrive.
	RPCs map[string]uint64
	// Emitted counts the events given to the stream.
	Emitted uint64
	// Blocked is the number of events without room in a subscriber's channel. A real runtime's caller
	// hangs meanwhile; the direct methods do not, but count the same.
	Blocked int
	// EmptyLists counts the lists that a fault had show nothing, although there was something.
	EmptyLists uint64
	// Subscribers is the number of open event streams, as far as the runtime has noticed.
	Subscribers int
}

// Stats returns the counters at this moment. The caller owns the result.
func (rt *Runtime) Stats() Stats {
	rt.lock()
	defer rt.mu.Unlock()
	s := Stats{
		RPCs:        maps.Clone(rt.rpcs),
		Emitted:     rt.hub.emitted,
		EmptyLists:  rt.emptyLists,
		Subscribers: len(rt.hub.subs),
	}
	for _, ev := range rt.hub.waiting {
		if ev.stuck {
			s.Blocked++
		}
	}
	return s
}
