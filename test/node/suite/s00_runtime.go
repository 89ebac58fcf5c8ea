// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func observeRuntime(t *T) {
	n := t.NewNode()
	rec := n.Record()
	t.Sleep(200 * time.Millisecond)
	began := time.Now()
	pod := n.Pod("one")
	t.Figure("runpod", "%v", time.Since(began))
	began = time.Now()
	id := n.Container(pod, "a", "exit", "3")
	t.Figure("createstart", "%v", time.Since(began))
	st := n.Exited(id)
	t.Logf("exit %d %s", st.ExitCode, st.Reason)
	t.Check(n.Remove(t.ctx, id))
	// oom
	oom, err := n.CreateAndStart(t.ctx, pod, crikit.Spec{Name: "oom", Args: []string{"eat", "200"}, Memory: 32 << 20})
	t.Check(err)
	st = n.Exited(oom)
	t.Logf("oom: %d %s", st.ExitCode, st.Reason)
	// fail start
	bad, err := n.Create(t.ctx, pod, crikit.Spec{Name: "bad", Command: "/none"})
	t.Check(err)
	t.Logf("start bad: %v", n.Start(t.ctx, bad))
	t.Sleep(300 * time.Millisecond)
	// stubborn
	sb := n.Container(pod, "stub", "stubborn")
	began = time.Now()
	t.Check(n.Stop(t.ctx, sb, time.Second))
	t.Figure("kill", "%v", time.Since(began))
	began = time.Now()
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			pod := n.Pod(fmt.Sprintf("p%d", p))
			for i := range 10 {
				n.Container(pod, fmt.Sprintf("c%d", i), "exit", "0")
			}
			t.Check(n.Delete(t.ctx, pod.SandboxID))
		})
	}
	wg.Wait()
	t.Figure("40 containers", "%v", time.Since(began))
	t.Check(n.Delete(t.ctx, pod.SandboxID))
	t.Sleep(500 * time.Millisecond)
	ev := rec.Events()
	t.Figure("events", "%d", len(ev))
	t.Figure("regressions", "%d", len(crikit.Regressions(ev)))
	for _, e := range ev[:min(30, len(ev))] {
		b, _ := json.Marshal(e.ContainersStatuses)
		t.Logf("%v %s sb=%v %v %.150s", e.ContainerEventType, e.ContainerId[:8], e.PodSandboxStatus.GetState(), e.At.Sub(time.Unix(0, e.CreatedAt)), b)
	}
	_ = runtimeapi.ContainerState_CONTAINER_CREATED
}
