// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"os"
	"syscall"
	"time"
)

// envSoak is the length of the soak, a Go duration, in place of the default of some minutes.
const envSoak = "NODE_E2E_SOAK"

// soak kills the runtime once a minute under load. While up, none of its events may be missed; each
// time it is back, the cache must come to equal it, and pod workers must never get an old answer.
func soak(t *T) {
	length, every := time.Duration(t.Size(300, 40))*time.Second, time.Duration(t.Size(60, 15))*time.Second
	if text := os.Getenv(envSoak); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		t.Check(err)
		every = time.Minute
	}
	n := t.NewNode()
	a := n.NewAgent("--stable-after", "2s")
	a.WaitConnected()
	l := n.StartLoad(3, 3, 600*time.Millisecond)
	var converged []time.Duration
	missedUp, missedDown, kills := 0, 0, 0
	for began := time.Now(); time.Since(began) < length; kills++ {
		before := a.MustStats().Generator.Missed
		t.Sleep(every)
		up := a.MustStats().Generator.Missed
		missedUp += up - before
		if n.Traits.Events {
			t.noneMissed(a, up-before, ", while the runtime was up")
		}
		n.StopRuntime(syscall.SIGKILL)
		t.Sleep(time.Second)
		n.StartRuntime()
		ready := time.Now()
		a.WaitConnected()
		l.Paused(func() {
			a.Converge()
			converged = append(converged, time.Since(ready))
		})
		// more than the grace after which a change that no event told counts as missed
		t.Sleep(5 * time.Second)
		after := a.MustStats()
		missedDown += after.Generator.Missed - up
		t.Logf("kill %d: connected and converged after %v, missed %d→%d→%d, %d containers, %d violations", kills,
			converged[kills].Round(time.Millisecond), before, up, after.Generator.Missed, l.made.Load(), after.Violations)
	}
	l.Stop()
	a.Converge()
	t.Figure("length", "%v", length)
	t.Figure("kills", "%d", kills)
	t.Figure("containers", "%d", l.made.Load())
	t.Figure("missed while up", "%d", missedUp)
	t.Figure("missed around the kills", "%d", missedDown)
	t.Figure("ready→connected and converged", "%s", quantiles(converged))
	t.Figure("violations", "%d", a.MustStats().Violations)
	t.latencies(a.MustEvents())
	t.waits(a)
}
