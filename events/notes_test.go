// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// kubeletsNine are a kubelet's events about a pod in trouble, with reasons used for several things.
var kubeletsNine = [][2]string{
	{"Failed", "Failed to pull image \"a\": not found"},
	{"Failed", "Error: ErrImagePull"},
	{"Failed", "Error: ImagePullBackOff"},
	{"Failed", "Error: failed to create containerd task"},
	{"FailedMount", "MountVolume.SetUp failed for volume \"config\": configmap \"a\" not found"},
	{"FailedMount", "MountVolume.SetUp failed for volume \"certs\": secret \"b\" not found"},
	{"Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 500"},
	{"Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"},
	{"BackOff", "Back-off restarting failed container a"},
}

// TestKubeletsNineMessages: a reason is used for different things; each message has its own count.
func TestKubeletsNineMessages(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		kubelet := r.NewLegacyRecorder(nil, ofKubelet)
		for n := range 3 {
			for _, e := range kubeletsNine {
				kubelet.Eventf(podRef("a"), corev1.EventTypeWarning, e[0], "%s", e[1])
				pass(time.Duration(n) * time.Second)
			}
		}
		pass(6 * time.Minute)
		got := map[string]string{}
		for _, e := range r.server.Events() {
			got[e.Note] = told(&e)
		}
		for _, e := range kubeletsNine {
			if got[e[1]] != "Finished ×3" {
				t.Errorf("%s says %q", e[1], got[e[1]])
			}
		}
		if len(got) != 9 {
			t.Errorf("stored: %v", got)
		}
		r.wantBooks(0, 0)
	})
}

// TestNotesAreBounded: distinct messages make a bounded number of series; a probe's messages are
// never counted under the other kind of probe.
func TestNotesAreBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		kubelet := r.NewLegacyRecorder(nil, ofKubelet)
		const each = 300
		for i := range each {
			kubelet.Eventf(podRef("a"), corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: took %d ms", i)
			kubelet.Eventf(podRef("a"), corev1.EventTypeWarning, "Unhealthy", "Liveness probe failed: took %d ms", i)
			pass(time.Second)
		}
		for i := range 100 { // more beginnings than are told apart
			kubelet.Eventf(podRef("a"), corev1.EventTypeWarning, "Unhealthy", "%s probe failed", strings.Repeat("x", i))
		}
		pass(6 * time.Minute)
		all := r.server.Events()
		count := map[string]int{}
		for _, e := range all {
			kind, _, _ := strings.Cut(strings.TrimPrefix(e.Note, combinedNote), " ")
			if e.Series != nil {
				count[kind] += int(e.Series.Count)
			} else {
				count[kind]++
			}
		}
		if len(all) > 2*maxNotes+1 || len(all) < maxNotes {
			t.Errorf("%d series: %s", len(all), brief(all))
		}
		if count["Readiness"] != each || count["Liveness"] != each {
			t.Errorf("counts: %v", count)
		}
		r.wantBooks(0, 0)
	})
}

// TestNotesOverARestart: series with different notes are continued, combined ones included, however
// much has been read before the first event. Each call takes 10 ms.
func TestNotesOverARestart(t *testing.T) {
	for _, read := range []time.Duration{0, 15 * time.Millisecond, 25 * time.Millisecond, 65 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			server := eventstest.NewServer()
			for n := range 2 {
				r := newRig(t, server, continuing)
				kubelet := r.NewLegacyRecorder(nil, ofKubelet)
				if n == 1 {
					server.SetFault(slowly(10 * time.Millisecond))
					pass(read)
				}
				for i := range 15 {
					kubelet.Event(podRef("a"), corev1.EventTypeWarning, "Failed", fmt.Sprintf("Error: %d", i))
				}
				kubelet.Event(podRef("b"), corev1.EventTypeWarning, "Failed", "")
				pass(time.Second)
				r.end(time.Second)
				if all := about(server.Events(), "b"); len(all) != 1 {
					t.Errorf("process %d: without a message: %s", n, brief(all))
				}
				if all := about(server.Events(), "a"); len(all) != 11 {
					t.Fatalf("process %d: %d events: %s", n, len(all), brief(all))
				}
			}
			all := about(server.Events(), "a")
			for i, want := range append(make([]int32, 0, 11), 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 10) {
				if all[i].Series == nil || all[i].Series.Count != want {
					t.Errorf("%q says %s, want ×%d", all[i].Note, told(&all[i]), want)
				}
			}
		})
	}
}

// TestBothInterfacesOverRestarts: a controller and instance has recorders of either kind, as in a
// scheduler; no object is continued by both.
func TestBothInterfacesOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(slowly(5 * time.Millisecond))
		for range 8 {
			r := newRig(t, server, continuing)
			older := r.NewLegacyRecorder(nil, corev1.EventSource{Component: controller, Host: "node-1"})
			for range 10 {
				older.Event(podRef("older"), corev1.EventTypeWarning, "Failed", "no")
				r.rec.Eventf(podRef("newer"), nil, corev1.EventTypeWarning, "Failed", "Try", "no")
			}
			r.end(time.Minute)
			r.wantBooks(0, 0)
			if n := r.Stats().Transitions["adopted"]; n > 2 {
				t.Errorf("%d series are continued", n)
			}
		}
		r := newRig(t, server, nil)
		r.wantAbout("older", "Unknown ×80")
		r.wantAbout("newer", "Unknown ×80")
	})
}

// TestNoteLikeAMark: no message is taken for the key of a combined series. What is beyond the
// limits is counted under a note that says so.
func TestNoteLikeAMark(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		kubelet := r.NewLegacyRecorder(nil, ofKubelet)
		for _, mark := range []string{"\x00", "\xff", combinedMark, combinedMark + "Error"} {
			kubelet.Event(podRef("a"), corev1.EventTypeWarning, "Failed", mark)
		}
		for i := range 3 * maxNotes {
			kubelet.Event(podRef("a"), corev1.EventTypeWarning, "Failed", fmt.Sprint("Error: ", i))
		}
		pass(6 * time.Minute)
		for _, e := range r.server.Events() {
			if !strings.HasPrefix(e.Note, combinedNote) && e.Series != nil && e.Series.Count > 3 {
				t.Errorf("%q says %s", e.Note, told(&e))
			}
		}
		r.wantBooks(0, 0)
	})
}

// TestCombinedElsewhere: the combined series of a pod cost the events of others nothing.
func TestCombinedElsewhere(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		kubelet := r.NewLegacyRecorder(nil, ofKubelet)
		for i := range 3 * maxNotes {
			kubelet.Event(podRef("a"), corev1.EventTypeWarning, "Failed", fmt.Sprint("Error: ", i))
		}
		pass(time.Second)
		look := func(name string) (found bool) {
			e := emission{content: content{note: "Error: new"}, eventType: "Warning", reason: "Failed", literal: true}
			e.regarding = podRef(name)
			noError(t, kubelet.(*LegacyRecorder).identify(&e))
			allocated := testing.AllocsPerRun(10, func() { found = r.core.combined(&e, time.Now()) != nil })
			if !found && allocated > 0 {
				t.Errorf("a look about %s makes %v allocations", name, allocated)
			}
			return found
		}
		if !look("a") || look("b") {
			t.Error("found for the pod a: want so, for b: want not")
		}
	})
}
