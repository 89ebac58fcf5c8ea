// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

func change(pod, id string, s bench.State) bench.Change {
	return bench.Change{Pod: pod, ID: id, State: s}
}

func TestDoubleStartsAreFound(t *testing.T) {
	b := newBook()
	b.enter([]bench.Change{
		change("one-a", "1", bench.Running), change("one-a", "1", bench.Exited), change("one-a", "2", bench.Running),
		change("many", "3", bench.Running), change("many", "4", bench.Running),
		{Pod: "one-a", ID: "s", State: bench.Running, Sandbox: true},
	})
	if len(b.twice) != 0 {
		t.Errorf("found %q in a history without a double start", b.twice)
	}
	if n := b.ran["one-a"]; n != 2 {
		t.Errorf("%d containers ran, want 2", n)
	}
	b.enter([]bench.Change{change("one-a", "5", bench.Running)})
	if len(b.twice) != 1 {
		t.Errorf("found %q, want the double start", b.twice)
	}
}

func TestTheBookKnowsWhatRuns(t *testing.T) {
	b := newBook()
	b.enter([]bench.Change{change("a", "1", bench.Running), change("a", "1", bench.Exited), change("b", "2", bench.Running)})
	if err := b.stopped([]string{"a"}); err != nil {
		t.Error(err)
	}
	if b.stopped([]string{"a", "b"}) == nil {
		t.Error("a running container was overlooked")
	}
	b.enter([]bench.Change{change("b", "2", bench.Removed), change("a", "1", bench.Removed)})
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
	b.enter([]bench.Change{change("a", "1", bench.Created), change("a", "1", bench.Exited), change("a", "2", bench.Exited), change("a", "3", bench.Created), change("a", "3", bench.Removed)})
	if b.ran["a"] != 2 || b.total.starts != 2 || b.total.exits != 2 {
		t.Errorf("%d containers ran, %d started and %d ended, want 2 of each", b.ran["a"], b.total.starts, b.total.exits)
	}
}

func TestContradictionsAreFound(t *testing.T) {
	state := map[string]bench.State{"r": bench.Running, "e": bench.Exited}
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
		stacks := slices.Repeat([]string{"goroutine 1 [select]:\nk8s.io/x.run()\n\t/x.go:1\ncreated by k8s.io/x.Start in goroutine 9\n\t/x.go:2"}, all-ours)
		stacks = append(stacks, slices.Repeat([]string{"goroutine 2 [select]:\n" + ourPath + "/internal/pleg.run()\n\t/p.go:1"}, ours)...)
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
