// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// again returns container a, started again under its ID after the end that exited shows.
func again() Container {
	c := running("a")
	c.StartedAt = start.Add(40 * time.Second)
	return c
}

// endedAgain returns the same at its second end.
func endedAgain() Container {
	c := exited("a", 137, "OOMKilled")
	c.StartedAt = again().StartedAt
	c.FinishedAt = start.Add(70 * time.Second)
	return c
}

// TestEachEndOfAContainerStartedAgain: docker restart starts a container again under its ID, below
// cri-dockerd too: kubernetes 31092; containerd 6763 asks for the same. Each of its ends is told.
// CRI-O 7004 claims after a restart that a container runs which had ended long before: that is no
// start, and what ends then is not told twice.
func TestEachEndOfAContainerStartedAgain(t *testing.T) {
	first := "ContainerFailed Container app failed (exit code 1) after 30s, attempt 0"
	second := "ContainerOOMKilled Container app was killed for lack of memory (OOMKilled, exit code 137, SIGKILL) after 30s, attempt 0"
	end := func(s *stand, shown Container) {
		s.cached(shows(shown), pleg.Event{Type: pleg.PodSync})
		s.read(shows(shown), false)
	}
	for _, test := range []struct {
		name string
		told map[string]time.Time
		play func(s *stand)
		want []string
	}{
		{"after the report", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			end(s, exited("a", 1, "Error"))
			s.cached(shows(again()), pleg.Event{Type: pleg.PodSync})
			end(s, endedAgain())
		}, []string{first, second}},
		{"before the end has settled", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			s.read(shows(again()), false)
			end(s, endedAgain())
		}, []string{first, second}},
		{"between two runs of the reporter", map[string]time.Time{"a": start.Add(30 * time.Second)}, func(s *stand) {
			s.cached(shows(again()), pleg.Event{Type: pleg.ContainerStarted})
			end(s, endedAgain())
		}, []string{second}},
		{"a runtime that has lost the end", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			end(s, exited("a", 1, "Error"))
			s.cached(shows(running("a")), pleg.Event{Type: pleg.PodSync})
			s.cached(shows(exited("a", -1, "Error")), pleg.Event{Type: pleg.PodSync})
		}, []string{first}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStand(t, test.told)
			test.play(s)
			s.wants(test.want...)
		})
	}
}
