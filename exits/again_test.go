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
	unseen := "ContainerLost Container app ended and was started again before its exit code could be read, attempt 0"
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
			lost := shows(exited("a", -1, "Error"))
			s.cached(lost, pleg.Event{Type: pleg.PodSync}).rest(lost)
		}, []string{first}},
		{"nobody saw the second start", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			end(s, exited("a", 1, "Error"))
			end(s, endedAgain())
		}, []string{first, second}},
		{"nobody saw the second start, and the first end settles", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			s.read(shows(endedAgain()), false)
			s.read(shows(endedAgain()), false)
		}, []string{first, second}},
		{"nobody saw the first end", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(again()), pleg.Event{Type: pleg.PodSync})
			end(s, endedAgain())
		}, []string{unseen, second}},
		{"nobody saw the first end and the second start", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			end(s, endedAgain())
		}, []string{unseen, second}},
		{"ended again between two runs of the reporter", map[string]time.Time{"a": start.Add(30 * time.Second)}, func(s *stand) {
			end(s, endedAgain())
		}, []string{second}},
		{"an answer from before the second start comes after it", nil, func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			s.overtaken(shows(exited("a", 1, "Error")), func() { s.cached(shows(again()), pleg.Event{Type: pleg.PodSync}) })
			end(s, endedAgain())
		}, []string{first, second}},
		{"a clock that was set back during its life", map[string]time.Time{"a": start.Add(-time.Minute)}, func(s *stand) {
			back := exited("a", 1, "Error")
			back.FinishedAt = start.Add(-time.Minute)
			s.cached(shows(back), pleg.Event{Type: pleg.PodSync}).rest(shows(back))
			s.cached(shows(back), pleg.Event{Type: pleg.PodSync}).rest(shows(back))
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStand(t, test.told)
			test.play(s)
			s.wants(test.want...)
		})
	}
}

// TestTheCodeOfAnEarlierEnd: what the runtime's client remembers of a container by its ID may be of
// an end before its last start, and is not told of the next one.
func TestTheCodeOfAnEarlierEnd(t *testing.T) {
	const (
		first  = "ContainerFailed Container app failed (exit code 7) after 30s, attempt 0"
		second = "ContainerFailed Container app failed (exit code 9), attempt 0"
		lost   = "ContainerLost Container app ended and was removed before its exit code could be read, attempt 0"
	)
	for _, test := range []struct {
		name  string
		later int32 // what the client knows at the removal
		want  string
	}{{"remembered", 7, lost}, {"and a later one", 9, second}} {
		t.Run(test.name, func(t *testing.T) {
			s := newStand(t, nil)
			code := int32(7)
			s.core.exit = func(string) (int32, string, bool) { return code, "Error", true }
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(exited("a", 7, "Error")), diedEvent)
			s.read(shows(exited("a", 7, "Error")), false)
			s.cached(shows(again()), pleg.Event{Type: pleg.PodSync})
			code = test.later
			s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"})
			s.wants(first, test.want)
		})
	}
}

// TestTheCodeOfAnEarlierEndThatIsShownLate: the first status of a container shows its second life,
// and the answer to a read from before it the end of the first.
func TestTheCodeOfAnEarlierEndThatIsShownLate(t *testing.T) {
	s := newStand(t, nil)
	s.core.exit = func(string) (int32, string, bool) { return 7, "Error", true }
	other := running("b")
	s.cached(shows(other), pleg.Event{Type: pleg.ContainerDied, ID: "b"})
	late := shows(exited("a", 7, "Error"), other)
	s.overtaken(late, func() { s.cached(shows(again(), other), pleg.Event{Type: pleg.PodSync}) })
	s.cached(shows(other), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"})
	s.wants("ContainerLost Container app ended and was removed before its exit code could be read, attempt 0")
}
