// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestUpdateEqualsInspect compares a status updated step by step, for the life of its pod, with a
// full inspection.
func TestUpdateEqualsInspect(t *testing.T) {
	onEveryProfile(t, func(w *world, _ string) {
		for seed := range uint64(10) {
			p := podLife{world: w, rng: rand.New(rand.NewPCG(seed, 5)), uid: fmt.Sprintf("pod-%d", seed), states: map[string]int{}}
			var prev *cri.PodStatus
			for range 25 {
				for range p.rng.IntN(4) {
					p.step()
				}
				pod := must(w.client.ListPod(w.Context(), cache.UID(p.uid)))
				updated := must(w.client.Update(w.Context(), pod, prev))
				full := must(w.client.Inspect(w.Context(), pod))
				if d := cmp.Diff(sortItems(full.Pod.Items), sortItems(updated.Pod.Items)); d != "" {
					w.Fatalf("seed %d: shows %s", seed, d)
				}
				if d := cmp.Diff(full.Status.Sandboxes(), updated.Status.Sandboxes()); d != "" {
					w.Fatalf("seed %d: sandboxes %s", seed, d)
				}
				if d := cmp.Diff(full.Status.Containers(), updated.Status.Containers()); d != "" {
					w.Fatalf("seed %d: containers %s", seed, d)
				}
				prev = updated.Status
			}
		}
	})
}

// podLife makes random changes of a pod.
type podLife struct {
	*world
	rng        *rand.Rand
	uid        string
	sandboxes  []string
	containers []string
	states     map[string]int // 0 created, 1 running, 2 exited
}

func (p *podLife) step() {
	p.Helper()
	time.Sleep(time.Millisecond) // a creation time of its own for everything
	switch n := p.rng.IntN(12); {
	case n == 0 || len(p.sandboxes) == 0:
		p.sandboxes = append(p.sandboxes, p.sandbox(fakeruntime.PodSpec{UID: p.uid}))
	case n < 5:
		id := p.container(p.sandboxes[len(p.sandboxes)-1], fakeruntime.ContainerSpec{})
		p.containers = append(p.containers, id)
	case n == 5 && len(p.sandboxes) > 1:
		p.check(p.rt.StopSandbox(p.sandboxes[0]))
		p.sandboxes = p.sandboxes[1:]
	case len(p.containers) > 0:
		id := p.containers[p.rng.IntN(len(p.containers))]
		switch p.states[id]++; p.states[id] {
		case 1:
			_ = p.rt.Start(id) // its sandbox may be stopped
		case 2:
			_ = p.rt.Exit(id, 3) // likewise
		default:
			p.check(p.rt.Remove(id))
			p.containers = slices.DeleteFunc(p.containers, func(c string) bool { return c == id })
		}
	}
}

// TestUpdateReadsWhatChanged checks that in a pod of any number of containers an exit costs a
// single call, that updates build upon events and reads alike, and that a status with an unknown
// phase is read again.
func TestUpdateReadsWhatChanged(t *testing.T) {
	onEveryProfile(t, func(w *world, profile string) {
		sandbox := w.sandbox(fakeruntime.PodSpec{UID: "u"})
		var containers []string
		for range 10 {
			id := w.container(sandbox, fakeruntime.ContainerSpec{})
			w.check(w.rt.Start(id))
			containers = append(containers, id)
		}
		update := func(prev *cri.PodStatus) (*cri.PodStatus, string) {
			w.Helper()
			before := w.client.Stats().Calls
			pod := must(w.client.ListPod(w.Context(), "u"))
			in := must(w.client.Update(w.Context(), pod, prev))
			w.compare(in.Status)
			after := w.client.Stats().Calls
			return in.Status, fmt.Sprintf("%d+%d", after["PodSandboxStatus"]-before["PodSandboxStatus"], after["ContainerStatus"]-before["ContainerStatus"])
		}
		expect := func(what, got, want string) {
			w.Helper()
			if got != want {
				w.Errorf("%s: %s calls of PodSandboxStatus and ContainerStatus, want %s", what, got, want)
			}
		}
		fills := profile == "crio"
		choose := func(filling, other string) string {
			if fills {
				return filling
			}
			return other
		}
		status, calls := update(nil)
		expect("from nothing", calls, choose("1+0", "1+10"))
		same, calls := update(status)
		expect("unchanged", calls, "0+0")
		w.check(w.rt.Exit(containers[4], 7))
		one, calls := update(same)
		expect("one exit", calls, "0+1")
		w.check(w.rt.Remove(containers[4]))
		gone, calls := update(one)
		expect("one removed", calls, "0+0")
		for _, id := range containers[6:] {
			w.check(w.rt.Exit(id, 0))
		}
		four, calls := update(gone)
		expect("four exits", calls, choose("1+0", "0+4"))
		w.check(w.rt.LoseTrack(containers[0]))
		lost, calls := update(four)
		expect("an unknown state", calls, "0+1")
		_, calls = update(lost)
		expect("an unknown state again", calls, "0+1")
	})
}

// TestUpdateFromAnEvent checks that an update may build upon a status from an event.
func TestUpdateFromAnEvent(t *testing.T) {
	inWorld(t, "containerd-2", fakeruntime.Faults{}, func(w *world) {
		sandbox := w.sandbox(fakeruntime.PodSpec{UID: "u"})
		first := w.container(sandbox, fakeruntime.ContainerSpec{})
		w.check(w.rt.Start(first))
		var brought *cri.PodStatus
		for claim, err := range w.client.Events(w.Context()) { // from the backlog
			w.check(err)
			if claim.Item.ID == first && claim.Item.Phase == pleg.PhaseRunning {
				brought = must(claim.Status(nil))
				claim.Release()
				break
			}
		}
		second := w.container(sandbox, fakeruntime.ContainerSpec{})
		pod := must(w.client.ListPod(w.Context(), "u"))
		before := w.client.Stats().Calls
		in := must(w.client.Update(w.Context(), pod, brought))
		w.compare(in.Status)
		after := w.client.Stats().Calls
		if n := after["ContainerStatus"] - before["ContainerStatus"]; n != 1 || after["PodSandboxStatus"] != before["PodSandboxStatus"] {
			w.Errorf("%d calls of ContainerStatus for one new container %s", n, second)
		}
	})
}

// TestExitCode reads the exit code of a removed container, once from an event and once from a read.
func TestExitCode(t *testing.T) {
	for name, learn := range map[string]func(w *world, pod pleg.Pod){
		"event": func(w *world, _ pleg.Pod) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			for range w.client.Events(ctx) { // until the time is up
			}
		},
		"read": func(w *world, pod pleg.Pod) {
			time.Sleep(2 * time.Second) // of the bubble: the container ends
			_, err := w.client.Inspect(context.Background(), pod)
			w.check(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, "containerd-2", fakeruntime.Faults{}, func(w *world) {
				sandbox := w.sandbox(fakeruntime.PodSpec{UID: "u", Name: "n", Namespace: "ns"})
				id := w.container(sandbox, fakeruntime.ContainerSpec{Name: "c", Life: fakeruntime.After(time.Second, 7)})
				w.check(w.rt.Start(id))
				if _, ok := w.client.ExitCode(id); ok {
					w.Error("a running container has an exit code")
				}
				learn(w, pleg.Pod{UID: "u", Items: []pleg.Item{{ID: sandbox, Kind: pleg.Sandbox}, {ID: id}}})
				if code, reason, ok := w.client.Exit(id); !ok || code != 7 || reason != "Error" {
					w.Errorf("exit code %d, reason %q, known %t; want 7 and Error", code, reason, ok)
				}
			})
		})
	}
	client := must(cri.New(cri.Config{Endpoint: "/nowhere"}))
	defer client.Close()
	if _, ok := client.ExitCode("unknown"); ok {
		t.Error("an unknown container has an exit code")
	}
}
