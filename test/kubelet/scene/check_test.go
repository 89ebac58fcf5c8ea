// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

func change(pod, id string, s bench.State) bench.Change {
	return bench.Change{Pod: pod, ID: id, State: s}
}

func TestDoubleStartsAreFound(t *testing.T) {
	inOrder := []bench.Change{
		change("one-a", "1", bench.Running), change("one-a", "1", bench.Exited), change("one-a", "2", bench.Running),
		change("many", "3", bench.Running), change("many", "4", bench.Running),
		{Pod: "one-a", ID: "s", State: bench.Running, Sandbox: true},
	}
	if twice := overlaps(inOrder); len(twice) != 0 {
		t.Errorf("found %q in a history without a double start", twice)
	}
	if twice := overlaps(append(inOrder, change("one-a", "5", bench.Running))); len(twice) != 1 {
		t.Errorf("found %q, want the double start", twice)
	}
	if n := starts(inOrder, "one-a"); n != 2 {
		t.Errorf("%d starts, want 2", n)
	}
	if err := stopped(inOrder[:2], []string{"one-a"}); err != nil {
		t.Error(err)
	}
	if err := stopped(inOrder, []string{"one-a"}); err == nil {
		t.Error("a running container was overlooked")
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

func TestQuantiles(t *testing.T) {
	all := []time.Duration{4, 1, 3, 2}
	if a, b, c := Quantile(all, 0.5), Quantile(all, 0.99), Quantile(nil, 0.5); a != 3 || b != 4 || c != 0 {
		t.Errorf("got %v, %v and %v", a, b, c)
	}
}
