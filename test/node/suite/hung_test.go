// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"errors"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// listMethods are the calls that list containers and sandboxes, the streaming ones of later
// runtimes included.
var listMethods = []string{"ListContainers", "ListPodSandbox", "StreamContainers", "StreamPodSandboxes"}

// hungLists keeps every list from the runtime, as one dead shim does on containerd 1.7, and wants
// starts and ends told all the same, of known pods and of a new one.
func hungLists(t *T) {
	a := t.Connect(withoutWorkers)
	pod, _ := a.runs("known")
	a.Converge()
	var holds []*criproxy.Injected
	for _, method := range listMethods {
		holds = append(holds, t.Proxy.Inject(criproxy.Fault{Method: method, Do: criproxy.Hold{}}))
	}
	// A payload with an ID that the status lacks is no status: the pod has to be read.
	began := time.Now()
	id, pid := t.Mortal(pod, "new", 3)
	a.WaitEvent(pleg.PhaseRunning, id)
	t.Figure("lists hang: start of a new container→event", "%dms", time.Since(began).Milliseconds())

	began = time.Now()
	another := t.Pod("unknown")
	other := t.Container(another, "c", "sleep", "1h")
	a.WaitEvent(pleg.PhaseRunning, another.SandboxID)
	a.WaitEvent(pleg.PhaseRunning, other)
	t.Figure("lists hang: a new pod→its events", "%dms", time.Since(began).Milliseconds())

	t.End(id, pid)
	ended := time.Unix(0, t.Exited(id).GetFinishedAt())
	died := a.WaitEvent(pleg.PhaseExited, id)
	t.Figure("lists hang: end→event", "%dms", since(ended, died.At).Milliseconds())
	hung := 0
	for _, hold := range holds {
		hung += hold.Hits()
		hold.Remove()
	}
	if hung == 0 {
		t.Errorf("no list was held")
	}
	a.Converge()
	if t.Traits.KeeperHangsLists {
		hungShim(t, a)
	}
}

// hungShim stops a container's shim, and has the container's resources changed: the runtime waits
// for the shim with the lock of the container's status held, and every list, event and new
// container waits for the lock. The end of a container in another pod is told all the same. Once
// the shim goes on, all is as before.
func hungShim(t *T, a *Agent) {
	victim, hung := a.runs("victim")
	pod, _ := a.runs("beside")
	id, pid := t.Mortal(pod, "ends", 4)
	a.WaitEvent(pleg.PhaseRunning, id)
	a.Converge()
	keeper := t.keeperOf(victim.SandboxID)
	t.Check(syscall.Kill(keeper, syscall.SIGSTOP))
	goOn := func() { _ = syscall.Kill(keeper, syscall.SIGCONT) }
	t.Cleanup(goOn)
	updated := make(chan error, 1)
	go func() {
		_, err := t.UpdateContainerResources(t.ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: hung,
			Linux:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 << 20},
		})
		updated <- err
	}()
	t.Eventually("the lists of the runtime hang", func() error {
		ctx, cancel := context.WithTimeout(t.ctx, time.Second)
		defer cancel()
		if _, err := t.ListContainers(ctx, &runtimeapi.ListContainersRequest{}); err == nil {
			return errors.New("a list was answered")
		}
		return nil
	})
	t.End(id, pid)
	ended := time.Unix(0, t.Exited(id).GetFinishedAt())
	died := a.WaitEvent(pleg.PhaseExited, id)
	t.Figure("a shim hangs: end in another pod→event", "%v", since(ended, died.At).Round(time.Millisecond))
	select {
	case err := <-updated:
		t.Errorf("the change of the hung container was answered (%v): nothing hung", err)
	default:
	}
	goOn()
	t.Check(<-updated)
	a.Converge()
}
