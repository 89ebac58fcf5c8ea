// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/test/node/agent"
	"github.com/evented-pleg/evented-pleg/test/node/criproxy"
)

// newerLimit is the longest wait of a worker while the runtime answers. An inspection takes
// milliseconds; a relist period, for which a worker must not wait, has grown beyond by then in the
// full form. The rest is for slow machines.
const newerLimit = 45 * time.Second

// newer lets many pod workers ask for statuses newer than the present moment, ten times as often as
// the kubelet's, in quiet, under load, with a disturbed wire, and across restarts of the runtime.
// The workers of every other scenario do the same at the kubelet's own rate.
func newer(t *T) {
	n := t.NewNode()
	a := n.NewAgent("--worker-period", "100ms", "--stable-after", "2s")
	a.WaitConnected()
	for p := range t.Size(20, 8) {
		pod := n.Pod(fmt.Sprintf("still%d", p))
		n.Container(pod, "c", "sleep", "1h")
	}
	phase := func(name string, wait time.Duration, bounded bool) {
		before := a.MustStats().Generator
		defer func() {
			after := a.MustStats().Generator
			t.Figure("missed "+name, "%d, and creations %d, removals %d, unheard %d, reconnects %d", after.Missed-before.Missed,
				after.MissedCreations-before.MissedCreations, after.MissedRemovals-before.MissedRemovals,
				after.Unheard-before.Unheard, after.Reconnects-before.Reconnects)
		}()
		t.Check(a.ResetWorkers(t.ctx))
		t.Sleep(wait)
		var w agent.WorkerStats
		t.Eventually(settle, name+": an answer is compared with the runtime", func() error {
			if w = a.MustStats().Workers; w.Checked == 0 {
				return fmt.Errorf("%d answers, none compared", w.Gets)
			}
			return nil
		})
		t.Figure(name, "%s", spread(w.Waits))
		if bounded && w.Waits.Max > newerLimit {
			t.Errorf("%s: a worker waited %v while the runtime answered", name, w.Waits.Max)
		}
	}
	length := time.Duration(t.Size(20, 5)) * time.Second
	a.waitPeriod(time.Duration(t.Size(64, 8)) * time.Second)
	phase("in quiet", length, true)
	l := n.StartLoad(4, 3, 500*time.Millisecond)
	phase("under load", length, true)

	hold, err := n.Proxy.Inject(criproxy.Fault{Method: stream, Do: criproxy.Stall{}})
	t.Check(err)
	phase("stream stalled", length, true)
	hold.Remove()
	slow, err := n.Proxy.Inject(criproxy.Fault{Method: "ContainerStatus", Do: criproxy.Delay{For: 300 * time.Millisecond}})
	t.Check(err)
	phase("statuses slow", length, true)
	slow.Remove()
	if n.Daemon != nil {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			n.RestartRuntime(signal)
		}
		phase("across restarts", length, false)
		a.WaitConnected()
	}
	l.Stop()
	a.Converge()
	phase("afterwards", length, true)
	t.Figure("violations", "%d", a.MustStats().Violations)
}
