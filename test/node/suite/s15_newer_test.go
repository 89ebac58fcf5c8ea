// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

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
	a := n.NewAgent(stableAfter(2 * time.Second))
	a.WaitConnected()
	pods := t.Size(20, 8)
	must[bool](a, "Probe", 10*float64(pods))
	for p := range pods {
		pod := n.Pod(fmt.Sprintf("still%d", p))
		n.Container(pod, "c", "sleep", "1h")
	}
	phase := func(name string, wait time.Duration, bounded bool) {
		before := a.Stats()
		defer func() {
			after := a.Stats()
			t.Figure("missed "+name, "%d, and creations %d, removals %d, unheard %d, reconnects %d", after.Missed-before.Missed,
				after.MissedCreations-before.MissedCreations, after.MissedRemovals-before.MissedRemovals,
				after.Unheard-before.Unheard, after.Reconnects-before.Reconnects)
		}()
		asked := len(a.Waits())
		t.Sleep(wait)
		var waits []time.Duration
		t.Eventually(settle, name+": an answer is compared with the runtime", func() error {
			if waits = a.Waits()[asked:]; len(waits) == 0 {
				return errors.New("none")
			}
			return nil
		})
		t.Figure(name, "%s", quantiles(waits))
		if longest := slices.Max(waits); bounded && longest > newerLimit {
			t.Errorf("%s: a worker waited %v while the runtime answered", name, longest)
		}
	}
	length := time.Duration(t.Size(20, 5)) * time.Second
	a.waitPeriod(time.Duration(t.Size(64, 8)) * time.Second)
	phase("in quiet", length, true)
	l := n.StartLoad(4, 3, 500*time.Millisecond)
	phase("under load", length, true)

	hold := n.Proxy.Inject(criproxy.Fault{Method: eventStream, Do: criproxy.Stall{}})
	phase("stream stalled", length, true)
	hold.Remove()
	slow := n.Proxy.Inject(criproxy.Fault{Method: "ContainerStatus", Do: criproxy.Delay{For: 300 * time.Millisecond}})
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
}
