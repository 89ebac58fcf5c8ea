// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A pod lives and dies by the direct methods; the client sees every step as from a containerd 2.
func TestLifeOfAPod(t *testing.T) {
	inBubble(t, Config{Seed: 1}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := must(w.rt.AddPod(PodSpec{Name: "web"}))(t)
		c := must(w.rt.AddContainer(sb, ContainerSpec{Life: After(3*time.Second, 7)}))(t)
		check(t, w.rt.Start(c))
		time.Sleep(3 * time.Second)
		list := must(w.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t)
		if len(list.Containers) != 1 || list.Containers[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("list at the exit, which the runtime has not noticed: %v", list.Containers)
		}
		time.Sleep(containerdExitLag)
		list = must(w.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t)
		if len(list.Containers) != 1 || list.Containers[0].Id != c || list.Containers[0].State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("list after the exit: %v", list.Containers)
		}
		st := must(w.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c}))(t).Status
		if st.ExitCode != 7 || st.FinishedAt-st.StartedAt != int64(3*time.Second) {
			t.Errorf("status: code %d after %v", st.ExitCode, time.Duration(st.FinishedAt-st.StartedAt))
		}
		check(t, w.rt.RemoveSandbox(sb))
		time.Sleep(tick)
		want := []string{"pod created", "pod started", "created", "started", "stopped", "pod stopped", "deleted", "pod deleted"}
		if diff := cmp.Diff(want, kinds(l.stop())); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if got := w.rt.Truth(); len(got.Pods) != 0 {
			t.Errorf("truth at the end: %+v", got)
		}
	})
}
