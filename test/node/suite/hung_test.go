// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"time"

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
}
