// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func change(pod, id string, s pleg.Phase) bench.Change {
	return bench.Change{Pod: pod, ID: id, Name: "c", State: s}
}

func TestDoubleStartsAreFound(t *testing.T) {
	b := newBook()
	b.enter([]bench.Change{
		change(
			"one-a",
			"1",
			pleg.PhaseRunning,
		),
		change("one-a", "1", pleg.PhaseExited),
		change("one-a", "2", pleg.PhaseRunning),
		{
			Pod:   "many",
			ID:    "3",
			Name:  "a",
			State: pleg.PhaseRunning,
		},
		{Pod: "many", ID: "4", Name: "b", State: pleg.PhaseRunning},
		{Pod: "one-a", ID: "s", State: pleg.PhaseRunning, Sandbox: true},
	})
	if err := b.twice(); err != nil {
		t.Errorf("found %v in a history without a double start", err)
	}
	if n := b.ran["one-a"]; n != 2 {
		t.Errorf("%d containers ran, want 2", n)
	}
	b.enter([]bench.Change{change("one-a", "5", pleg.PhaseRunning)})
	if err := b.twice(); err == nil || !strings.Contains(err.Error(), "runs as 2 and as 5") {
		t.Errorf("found %v, want the double start", err)
	}
	if err := b.twice(); err != nil {
		t.Errorf("found %v again", err)
	}
}

func TestTheBookKnowsWhatRuns(t *testing.T) {
	b := newBook()
	b.enter(
		[]bench.Change{
			change("a", "1", pleg.PhaseRunning),
			change("a", "1", pleg.PhaseExited),
			change("b", "2", pleg.PhaseRunning),
		},
	)
	if err := b.stopped([]string{"a"}); err != nil {
		t.Error(err)
	}
	if b.stopped([]string{"a", "b"}) == nil {
		t.Error("a running container was overlooked")
	}
	b.enter([]bench.Change{change("b", "2", pleg.PhaseRemoved), change("a", "1", pleg.PhaseRemoved)})
	if err := b.stopped([]string{"a", "b"}); err != nil {
		t.Error(err)
	}
	if b.total.starts != 2 || b.total.exits != 2 || b.total.removals != 2 {
		t.Errorf("counted %+v, want 2 of each", b.total)
	}
}

// TestAnEndWithoutAStartIsARun: a real runtime may send the end of a short container before its
// start, which is then no news.
func TestAnEndWithoutAStartIsARun(t *testing.T) {
	b := newBook()
	b.enter(
		[]bench.Change{
			change("a", "1", pleg.PhaseCreated),
			change("a", "1", pleg.PhaseExited),
			change("a", "2", pleg.PhaseExited),
			change("a", "3", pleg.PhaseCreated),
			change("a", "3", pleg.PhaseRemoved),
		},
	)
	if b.ran["a"] != 2 || b.total.starts != 2 || b.total.exits != 2 {
		t.Errorf(
			"%d containers ran, %d started and %d ended, want 2 of each",
			b.ran["a"],
			b.total.starts,
			b.total.exits,
		)
	}
}

func TestContradictionsAreFound(t *testing.T) {
	state := map[string]pleg.Phase{"r": pleg.PhaseRunning, "e": pleg.PhaseExited}
	status := func(id string, s corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{ContainerID: "fake://" + id, State: s}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(id string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "fake://" + id}}
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	for _, s := range []corev1.ContainerStatus{status("r", runs), status("e", ended("e")), status("e", waits), {State: waits}} {
		if got := contradiction(s, state); got != "" {
			t.Errorf("%v: %s", s, got)
		}
	}
	for _, s := range []corev1.ContainerStatus{status("e", runs), status("r", ended("r")), status("r", waits), status("gone", runs)} {
		if contradiction(s, state) == "" {
			t.Errorf("%v was taken for the truth", s)
		}
	}
}

// TestLeaksAreFound checks that a level growing from round to round is found, and an oscillating
// level is not.
func TestLeaksAreFound(t *testing.T) {
	level := func(all, ours int) (l Level) {
		stacks := slices.Repeat(
			[]string{
				"goroutine 1 [select]:\nk8s.io/x.run()\n\t/x.go:1\ncreated by k8s.io/x.Start in goroutine 9\n\t/x.go:2",
			},
			all-ours,
		)
		stacks = append(
			stacks,
			slices.Repeat(
				[]string{"goroutine 2 [select]:\n" + ourPath + "/internal/pleg.run()\n\t/p.go:1"},
				ours,
			)...)
		l.count(append(stacks, "goroutine 3 [select]:\ngithub.com/google/cadvisor/manager.run()\n\t/c.go:1"))
		return l
	}
	if l := level(100, 5); l.Goroutines != 100 || l.Ours != 5 || l.By["k8s.io/x.Start"] != 95 {
		t.Errorf("of 100 goroutines, 5 of ours, are counted %+v", l)
	}
	var steady leak
	for i := range 40 {
		if err := steady.after(level(100+i%2*leakSlack, 5+i%2)); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
	}
	for name, of := range map[string]func(i int) Level{
		"one goroutine a round": func(i int) Level { return level(100+i, 5) },
		"one of ours a round":   func(i int) Level { return level(100, 5+i) },
	} {
		var l leak
		found := false
		for i := range 40 {
			found = found || l.after(of(i)) != nil
		}
		if !found {
			t.Errorf("%s: not found", name)
		}
	}
}
