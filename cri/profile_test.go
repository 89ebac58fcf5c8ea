// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"errors"
	"io"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// onEveryProfile runs f in a world of each profile.
func onEveryProfile(t *testing.T, f func(w *world, profile string)) {
	for _, profile := range fakeruntime.ProfileNames() {
		t.Run(profile, func(t *testing.T) {
			inWorld(t, profile, fakeruntime.Faults{}, func(w *world) { f(w, profile) })
		})
	}
}

// mixedNode has pods in every phase, among them a pod with two attempts of its sandbox.
func (w *world) mixedNode() {
	must(w.rt.Populate(fakeruntime.Population{Pods: 5, Containers: 2}))
	web := w.sandbox(fakeruntime.PodSpec{UID: "web", Name: "web"})
	w.container(web, fakeruntime.ContainerSpec{Name: "init"})
	app := w.container(web, fakeruntime.ContainerSpec{Name: "app"})
	w.check(w.rt.Start(app))
	w.check(w.rt.Exit(app, 3))
	twice := w.sandbox(fakeruntime.PodSpec{UID: "twice", Name: "twice"})
	old := w.container(twice, fakeruntime.ContainerSpec{Name: "app"})
	w.check(w.rt.Start(old))
	w.check(w.rt.StopSandbox(twice))
	time.Sleep(time.Second)
	again := w.sandbox(fakeruntime.PodSpec{UID: "twice", Name: "twice"})
	w.check(w.rt.Start(w.container(again, fakeruntime.ContainerSpec{Name: "app"})))
	time.Sleep(time.Second)
}

func TestReadsOnEveryProfile(t *testing.T) {
	onEveryProfile(t, func(w *world, profile string) {
		w.mixedNode()
		listing := must(w.client.List(w.Context(), 0))
		if d := cmp.Diff(w.truth(), sortPods(listing.Pods)); d != "" {
			w.Fatalf("List: %s", d)
		}
		for _, want := range w.truth() {
			got := must(w.client.ListPod(w.Context(), want.UID))
			sortItems(got.Items)
			if d := cmp.Diff(want, got); d != "" {
				w.Errorf("ListPod: %s", d)
			}
			for range 2 { // the second time, the client knows the contents of the runtime's answers
				in := must(w.client.Inspect(w.Context(), got))
				sortItems(in.Pod.Items)
				if d := cmp.Diff(want, in.Pod); d != "" {
					w.Errorf("Inspect: %s", d)
				}
				w.compare(in.Status)
			}
		}
		if filled := w.client.Stats().FilledStatuses; (filled == "yes") != (profile == "crio") {
			w.Errorf("filled statuses: %s", filled)
		}
		streaming := map[string]string{"containerd-2": "yes", "crio": "yes", "crio-disabled": "yes"}[profile]
		if got := w.client.Stats().StreamingLists; got != max(streaming, "no") {
			w.Errorf("streaming lists: %s", got)
		}
		// A pod goes, another changes.
		for _, s := range w.rt.Truth().Pods {
			if s.UID == "web" {
				w.check(w.rt.RemoveSandbox(s.Sandboxes[0].ID))
			}
		}
		pod, _ := w.rt.PodTruth("twice")
		w.check(w.rt.Exit(pod.Sandboxes[1].Containers[0].ID, 9))
		time.Sleep(time.Second)
		next := must(w.client.List(w.Context(), listing.Revision))
		twice := w.truth()
		twice = slices.DeleteFunc(twice, func(p pleg.Pod) bool { return p.UID != "twice" })
		if d := cmp.Diff(twice, sortPods(next.Pods)); d != "" || !next.Delta || next.Total != 6 || len(next.Gone) != 1 || next.Gone[0] != "web" {
			w.Fatalf("second List: %+v\n%s", next, d)
		}
		same := must(w.client.List(w.Context(), next.Revision))
		if d := cmp.Diff(pleg.Listing{Revision: same.Revision, Delta: true, Total: 6}, same); d != "" {
			w.Errorf("List when nothing has changed: %s", d)
		}
		all := must(w.client.List(w.Context(), listing.Revision))
		if d := cmp.Diff(w.truth(), sortPods(all.Pods)); d != "" || all.Delta || all.Total != 6 {
			w.Errorf("List since an old revision: %+v\n%s", all, d)
		}
		gone := must(w.client.ListPod(w.Context(), "web"))
		if len(gone.Items) != 0 {
			w.Errorf("ListPod of a pod that is gone: %+v", gone)
		}
	})
}

// compare holds a status against the truth.
func (w *world) compare(s *cri.PodStatus) {
	w.Helper()
	w.check(s.Err())
	truth, _ := w.rt.PodTruth(string(s.UID()))
	if s.Name() != truth.Name || s.Namespace() != truth.Namespace {
		w.Errorf("status of %s/%s, want %s/%s", s.Namespace(), s.Name(), truth.Namespace, truth.Name)
	}
	sandboxes, containers := map[string]cri.SandboxStatus{}, map[string]cri.ContainerStatus{}
	for _, x := range s.Sandboxes() {
		sandboxes[x.ID] = x
	}
	for _, x := range s.Containers() {
		containers[x.ID] = x
	}
	n := 0
	for _, want := range truth.Sandboxes {
		got := sandboxes[want.ID]
		if got.Phase != phaseOf[want.State] || got.Attempt != want.Attempt || want.IP != "" && !slices.Contains(got.IPs, want.IP) {
			w.Errorf("sandbox %+v, want %+v", got, want)
		}
		for _, want := range want.Containers {
			n++
			got := containers[want.ID]
			if got.Phase != phaseOf[want.State] || got.Name != want.Name || got.Attempt != want.Attempt || got.ExitCode != want.ExitCode || got.Reason != want.Reason {
				w.Errorf("container %+v, want %+v", got, want)
			}
			for at, ns := range map[time.Time]int64{got.CreatedAt: want.CreatedAt, got.StartedAt: want.StartedAt, got.FinishedAt: want.FinishedAt} {
				if ns != 0 && at.UnixNano() != ns {
					w.Errorf("container %s has the stamp %v, want %d", want.ID, at, ns)
				}
			}
		}
	}
	if len(sandboxes) != len(truth.Sandboxes) || len(containers) != n {
		w.Errorf("%d sandboxes and %d containers, want %d and %d", len(sandboxes), len(containers), len(truth.Sandboxes), n)
	}
	for _, sandbox := range truth.Sandboxes {
		for _, c := range sandbox.Containers {
			if got := containers[c.ID].SandboxID; got != sandbox.ID {
				w.Errorf("container %s is said to be in sandbox %q, it is in %s", c.ID, got, sandbox.ID)
			}
		}
	}
	if newest := truth.Sandboxes[len(truth.Sandboxes)-1]; newest.State == fakeruntime.StateReady && newest.IP != "" && (len(s.IPs()) == 0 || s.IPs()[0] != newest.IP) {
		w.Errorf("IPs are %v, want %s first", s.IPs(), newest.IP)
	}
}

func TestEventsOnEveryProfile(t *testing.T) {
	onEveryProfile(t, func(w *world, profile string) {
		known := map[string]pleg.Item{}
		pods := map[string]string{}
		ended := make(chan error, 1)
		own := map[string]pleg.Phase{}
		go func() {
			for claim, err := range w.client.Events(w.Context()) {
				if err != nil {
					ended <- err
					return
				}
				for _, item := range claim.Payload {
					item.Phase = max(item.Phase, known[item.ID].Phase)
					known[item.ID] = item
				}
				item := claim.Item
				own[item.ID] = max(own[item.ID], item.Phase)
				item.Phase = max(item.Phase, known[item.ID].Phase)
				known[item.ID] = item
				pods[item.ID] = string(claim.Pod)
				if claim.CreatedAt.IsZero() {
					w.Errorf("claim %+v has no stamp", claim)
				}
				status, err := claim.Status(nil)
				if err != nil || status.Err() != nil || status.UID() != claim.Pod {
					w.Errorf("status of %+v: %v, %v", claim, status, err)
				}
			}
		}()
		synctest.Wait()
		sandbox := w.sandbox(fakeruntime.PodSpec{UID: "u"})
		c := w.container(sandbox, fakeruntime.ContainerSpec{})
		w.check(w.rt.Start(c))
		time.Sleep(time.Second)
		w.check(w.rt.Exit(c, 1))
		time.Sleep(time.Second)
		w.check(w.rt.Remove(c))
		time.Sleep(time.Second)
		w.check(w.rt.StopSandbox(sandbox))
		time.Sleep(time.Second)
		synctest.Wait()
		switch profile {
		case "crio-disabled":
			if err := <-ended; err != io.EOF {
				w.Fatalf("the stream ended with %v, want io.EOF", err)
			}
			return
		case "no-events":
			if err := <-ended; !errors.Is(err, pleg.ErrNoEvents) {
				w.Fatalf("the stream ended with %v, want pleg.ErrNoEvents", err)
			}
			return
		}
		want := map[string]pleg.Item{
			sandbox: {ID: sandbox, Kind: pleg.Sandbox, Phase: pleg.PhaseExited},
			c:       {ID: c, Kind: pleg.Container, Phase: pleg.PhaseRemoved},
		}
		if d := cmp.Diff(want, known); d != "" {
			w.Errorf("claims: %s", d)
		}
		if own[sandbox] != pleg.PhaseExited || own[c] != pleg.PhaseRemoved {
			w.Errorf("phases by the claims' own items: %v", own)
		}
		if !maps.Equal(pods, map[string]string{sandbox: "u", c: "u"}) {
			w.Errorf("pods of the claims: %v", pods)
		}
		w.rt.Down()
		if err := <-ended; err == io.EOF || errors.Is(err, pleg.ErrNoEvents) {
			w.Errorf("a broken stream ended with %v", err)
		}
	})
}
