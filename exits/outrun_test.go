// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// overtaken begins the planned read, has events come with their statuses while it is under way, and
// answers it by a status from before them.
func (s *stand) overtaken(before Pod, events func()) {
	s.t.Helper()
	began := s.begin()
	s.now = s.now.Add(100 * time.Millisecond)
	events()
	s.now = s.now.Add(100 * time.Millisecond)
	s.take(sighting{pod: before, readAfter: began})
}

// keeps checks the number of containers in the core; without any, no pod is kept either.
func (s *stand) keeps(containers int) {
	s.t.Helper()
	if s.core.containers != containers || containers == 0 && len(s.core.pods) != 0 {
		s.t.Errorf("%d containers and %d pods are kept, want %d containers", s.core.containers, len(s.core.pods), containers)
	}
}

// TestAnEventOvertakesARead: the answer to a read waits beside the events of Watch, and may be
// older than one that is taken first. It says nothing against what that one's status has shown.
func TestAnEventOvertakesARead(t *testing.T) {
	const (
		failed = "ContainerFailed Container app failed (exit code 1) after 30s, attempt 0"
		died   = "SandboxDied The pod's sandbox ended under its running containers: app"
	)
	started := pleg.Event{Type: pleg.ContainerStarted}
	diedB := pleg.Event{Type: pleg.ContainerDied, ID: "b", ContainerName: "app"}
	sandboxDied := pleg.Event{Type: pleg.ContainerDied, Kind: pleg.Sandbox, ID: "s"}
	dead := func(all ...Container) Pod {
		pod := shows(all...)
		pod.Sandboxes[0].Ready = false
		return pod
	}
	a, b := exited("a", 1, "Error"), exited("b", 1, "Error")
	for _, test := range []struct {
		name string
		play func(s *stand)
		want []string
	}{
		{"an end", func(s *stand) {
			s.cached(shows(a, running("b")), diedEvent)
			s.overtaken(shows(a, running("b")), func() { s.cached(shows(a, b), diedB) })
			s.read(shows(a, b), false)
		}, []string{failed, failed}},
		{"an end, and the container is removed", func(s *stand) {
			s.cached(shows(a, running("b")), diedEvent)
			s.overtaken(shows(a, running("b")), func() { s.cached(shows(a, b), diedB) })
			s.cached(shows(a), pleg.Event{Type: pleg.ContainerRemoved, ID: "b"})
		}, []string{failed, failed}},
		{"an end that was claimed in vain", func(s *stand) {
			s.cached(shows(a, running("b")), diedEvent)
			s.overtaken(shows(a, running("b")), func() { s.cached(shows(a, running("b")), diedB) })
			s.read(shows(a, running("b")), false)
		}, []string{failed}},
		{"an end of what no status has shown", func(s *stand) {
			s.cached(shows(a), diedEvent)
			s.overtaken(shows(a), func() { s.cached(shows(a), diedB) })
			s.read(shows(a, b), false)
		}, []string{failed, failed}},
		{"a start", func(s *stand) {
			s.cached(shows(a), diedEvent)
			s.overtaken(shows(a), func() { s.cached(shows(a, running("b")), started) })
			s.read(shows(a, running("b")), false)
			s.cached(shows(a, b), diedB)
			s.read(shows(a, b), false)
		}, []string{failed, failed}},
		{"a start, in a pod that was gone", func(s *stand) {
			s.cached(shows(running("a")), started)
			s.cached(shows(running("b")), started)
			s.overtaken(shows(), func() { s.cached(shows(running("b")), started) })
			s.read(shows(running("b")), false)
		}, []string{"ContainerLost Container app ended and was removed before its exit code could be read, attempt 0"}},
		{"a sandbox's end", func(s *stand) {
			s.cached(shows(a, running("b")), diedEvent)
			s.overtaken(shows(a, running("b")), func() { s.cached(dead(a, running("b")), sandboxDied) })
			s.read(dead(a, running("b")), false)
		}, []string{failed, died}},
		{"a sandbox's start", func(s *stand) {
			next := shows(a, running("b"))
			next.Sandboxes = append(next.Sandboxes, Sandbox{ID: "next", Ready: true})
			next.Containers[1].SandboxID = "next"
			s.cached(shows(a), diedEvent)
			s.overtaken(shows(a), func() { s.cached(next, started) })
			over := shows(a, running("b"))
			over.Sandboxes = append(over.Sandboxes, Sandbox{ID: "next"})
			over.Containers[1].SandboxID = "next"
			s.cached(over, pleg.Event{Type: pleg.ContainerDied, Kind: pleg.Sandbox, ID: "next"})
			s.read(over, false)
		}, []string{failed, died}},
		{"a removal", func(s *stand) {
			s.cached(shows(a, running("b")), diedEvent)
			s.overtaken(shows(a, running("b")), func() {
				s.cached(shows(running("b")), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"})
			})
			s.keeps(1)
		}, []string{failed}},
		{"the removal of the pod", func(s *stand) {
			s.cached(shows(a), diedEvent)
			s.overtaken(shows(a), func() { s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"}) })
			s.keeps(0)
		}, []string{failed}},
		{"the removal of the pod, and a container that is never shown", func(s *stand) {
			s.cached(shows(a), diedEvent)
			partial := shows()
			partial.Unread = []string{"b"}
			s.overtaken(shows(a), func() {
				s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"})
				s.cached(partial, diedB)
			})
			s.keeps(1)
			s.read(shows(), false)
			s.keeps(0)
		}, []string{failed, "ContainerLost Container app ended and was removed before its exit code could be read"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStand(t, nil)
			test.play(s)
			s.wants(test.want...)
		})
	}
}
