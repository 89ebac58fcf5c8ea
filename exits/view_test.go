// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestTheViewOfAStatus has what the runtime says of a pod with two containers of one name.
func TestTheViewOfAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeruntime.Config{Seed: 50})
		a := w.start(nil)
		defer a.stop()
		spec := fakeruntime.PodSpec{Name: "p", Namespace: "ns", Labels: map[string]string{"app": "db"}}
		sandbox := must(w.runtime.AddPod(spec))(t)
		var ids []string
		for range 2 {
			id := must(w.runtime.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "app"}))(t)
			check(t, w.runtime.Start(id))
			time.Sleep(time.Second)
			check(t, w.runtime.Exit(id, 3))
			time.Sleep(time.Second)
			ids = append(ids, id)
		}
		listed := must(a.client.List(t.Context(), 0))(t).Pods
		if len(listed) != 1 {
			t.Fatalf("%d pods", len(listed))
		}
		in := must(a.client.Inspect(t.Context(), listed[0]))(t)
		pod := FromCRI(in.Status)
		if pod.Name != "p" || pod.Namespace != "ns" || pod.UID != listed[0].UID || pod.Labels["app"] != "db" || pod.empty() {
			t.Errorf("%+v", pod)
		}
		if len(pod.Sandboxes) != 1 || pod.Sandboxes[0].ID != sandbox || !pod.Sandboxes[0].Ready {
			t.Errorf("the sandboxes are %+v", pod.Sandboxes)
		}
		attempts := make(map[string]uint32)
		for _, c := range pod.Containers {
			attempts[c.ID] = c.Attempt
			whole := c.Name == "app" && c.SandboxID == sandbox && c.Phase == pleg.PhaseExited && c.ExitCode == 3
			if !whole || c.CreatedAt.IsZero() || c.StartedAt.IsZero() || c.FinishedAt.IsZero() {
				t.Errorf("a container is %+v", c)
			}
		}
		if len(attempts) != 2 || attempts[ids[0]] != 0 || attempts[ids[1]] != 1 {
			t.Errorf("the attempts are %v", attempts)
		}
	})
}

// TestAPodOfUnreadParts is not empty: the runtime has something of it.
func TestAPodOfUnreadParts(t *testing.T) {
	for _, pod := range []Pod{{Unread: []string{"a"}}, {Sandboxes: []Sandbox{{}}}, {Containers: []Container{{}}}} {
		if pod.empty() {
			t.Errorf("%+v is empty", pod)
		}
	}
	if none := (Pod{}); !none.empty() {
		t.Error("nothing is not empty")
	}
}
