// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// quiet is how long no call has succeeded when the runtime counts as stopped.
const quiet = 4 * time.Second

// stopped waits until no call has succeeded for a while, or for at most most, and returns the time
// since the last success.
func (l *load) stopped(most time.Duration) time.Duration {
	for began := time.Now(); ; l.n.t.Sleep(100 * time.Millisecond) {
		if idle := l.idle(); idle > quiet || time.Since(began) > most {
			return idle
		}
	}
}

// undisturbed lets the load run for a while, records its calls, and fails the scenario if one hung
// or failed.
func (l *load) undisturbed(while string, d time.Duration) {
	before := l.Stats()
	l.n.t.Sleep(d)
	l.n.t.Figure("calls, "+while, "%s", quantiles(l.tookSince(before)))
	if after := l.Stats(); errorsIn(after) > errorsIn(before) {
		l.n.t.Errorf("%s, calls failed: %v with %q", while, after.Errors, after.FirstErrors)
	}
}

// stalled stops the agent's process, and then only its consumer, while another client makes
// and removes pods. A stopped process stops this runtime: the test measures the stop and its end.
// An idle consumer must cost the runtime nothing.
func stalled(t *T) {
	n := t.NewNode()
	// Straight to the runtime: the proxy would take up part of the stall.
	a := n.NewAgent(withoutWorkers, func(c *worker.Config) { c.Endpoint, c.Capacity = n.Endpoint, 16 })
	a.WaitConnected()
	l := n.StartLoad(4, 3, 100*time.Millisecond)
	l.undisturbed("agent reads", time.Duration(t.Size(10, 4))*time.Second)

	// The consumer stops reading: Watch is full after 16 events.
	must[bool](a, "Consume", false)
	before := a.Stats()
	l.undisturbed("Watch not read", time.Duration(t.Size(30, 8))*time.Second)
	t.Eventually(settle, "Watch of size 16 is full", func() error {
		if now := a.Stats(); now.Owed == before.Owed {
			return fmt.Errorf("%d claims came", now.Claims-before.Claims)
		}
		return nil
	})
	t.Figure("events meanwhile", "%d", a.Stats().Claims-before.Claims)
	if health := a.Stats().Health; health != "" {
		t.Errorf("a Watch that is not read makes the agent unhealthy: %s", health)
	}
	must[bool](a, "Consume", true)
	t.Eventually(settle, "the debt is paid", func() error {
		if s := a.Stats(); s.OwedPods > 0 {
			return fmt.Errorf("%d pods are owed", s.OwedPods)
		}
		return nil
	})

	// The process stops: only the kernel's and grpc's buffers take events now.
	reading := l.Stats()
	stop := time.Now()
	a.Signal(syscall.SIGSTOP)
	most := settle
	if n.Traits.StalledSubscriber != runtimes.Blocks {
		most = time.Duration(t.Size(30, 10)) * time.Second
	}
	idle := l.stopped(most)
	t.Figure("calls, agent stopped", "%s", quantiles(l.tookSince(reading)))
	if idle > quiet {
		t.Figure("stopped→runtime hangs", "%.1fs", (time.Since(stop) - idle).Seconds())
	} else {
		t.Figure("stopped→runtime hangs", "not within %v", most)
		if n.Traits.StalledSubscriber == runtimes.Blocks {
			t.Errorf("the runtime did not hang on a subscriber that does not read for %v: its trait is no longer true", most)
		}
	}
	t.Sleep(max(0, time.Duration(t.Size(30, 5))*time.Second-time.Since(stop)))
	a.Signal(syscall.SIGCONT)
	t.Figure("continued→runtime goes on", "%dms", l.progressed().Milliseconds())
	l.Paused(func() {}) // calls hung before the end of the stop are over
	l.undisturbed("agent reads again", time.Duration(t.Size(10, 4))*time.Second)

	// Stopped again, and killed: the dropped stream frees the runtime.
	a.Signal(syscall.SIGSTOP)
	l.stopped(most)
	a.Kill()
	t.Figure("killed→runtime goes on", "%dms", l.progressed().Milliseconds())
	l.Stop()

	again := n.NewAgent()
	again.Converge()
	id := n.Container(n.Pod("after"), "after", "exit", "4")
	again.WaitEvent(bench.Exited, id)
	again.Converge()
}
