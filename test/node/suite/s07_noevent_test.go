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
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// noEvent makes changes without an event: a container that fails to start, and an exit while the
// runtime is down.
func noEvent(t *T) {
	n := t.NewNode()
	a := n.NewAgent(withoutWorkers, stableAfter(2*time.Second), func(c *worker.Config) { c.RelistMax = 8 * time.Second })
	a.WaitConnected()
	pod := n.Pod("pod")
	a.WaitEvent(bench.Running, pod.SandboxID)
	a.waitPeriod(8 * time.Second)

	if n.Traits.CreateFails {
		n.failedCreate(a, pod)
	} else {
		n.failedStart(a, pod)
	}

	if n.Daemon == nil {
		t.Figure("exit while down", "not applicable: the runtime is not ours to stop")
		return
	}
	silent, pid := n.Mortal(pod, "silent", 9)
	a.WaitEvent(bench.Running, silent)
	before := a.Stats()
	n.StopRuntime(syscall.SIGKILL)
	if n.Traits.Events {
		a.WaitState(pleg.StreamBackoff)
	}
	n.End(silent, pid)
	back := time.Now()
	n.StartRuntime()
	died := a.WaitEvent(bench.Exited, silent)
	a.Converge()
	t.Figure("exit while down→Watch", "%dms after its start, by a %s", since(back, died.At).Milliseconds(), cause(died))
	held := bench.Find(a.Cache(), pod.UID, silent)
	t.Figure("told as", "%d %s", held.ExitCode, held.Reason)
	a.WaitConnected()
	if !n.Traits.Events {
		return // nothing is unheard where nothing is promised
	}
	t.Eventually(settle, "the exit while the runtime was down is counted as unheard", func() error {
		if now := a.Stats(); now.Unheard <= before.Unheard || now.Missed != before.Missed {
			return fmt.Errorf("unheard %d, before %d; missed %d, before %d", now.Unheard, before.Unheard, now.Missed, before.Missed)
		}
		return nil
	})
}

// failedStart makes a container without an event of its end, and demands that the agent finds the
// end and counts it as missed.
func (n *Node) failedStart(a *Agent, pod *crikit.Pod) {
	t := n.t
	id, err := n.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"})
	t.Check(err)
	before := a.Stats()
	if err := n.Start(t.ctx, id); err == nil {
		t.Fatalf("a container with a command that does not exist started")
	}
	failed := time.Now()
	died := a.WaitEvent(bench.Exited, id)
	took := since(failed, died.At)
	if died.Claim {
		t.Error("the failed start was found by an event, and the runtime sends none")
	}
	after := before
	t.Eventually(settle, "the failed start is counted as missed", func() error {
		if after = a.Stats(); after.Missed != before.Missed+1 {
			return fmt.Errorf("missed %d, before %d", after.Missed, before.Missed)
		}
		return nil
	})
	if after.RelistPeriod >= before.RelistPeriod {
		t.Errorf("the period stayed at %v after a missed event", after.RelistPeriod)
	}
	a.Converge()
	t.Figure("failed start→Watch", "%.1fs (period %v)", took.Seconds(), before.RelistPeriod)
}

// failedCreate: a bad command that fails in CreateContainer leaves no container to find.
func (n *Node) failedCreate(a *Agent, pod *crikit.Pod) {
	t := n.t
	before := a.Stats()
	if id, err := n.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"}); err == nil {
		t.Fatalf("a container with a command that does not exist was created: %s", id)
	}
	t.Sleep(before.RelistPeriod) // a relist, at least
	a.Converge()
	for _, i := range bench.ItemsOf(n.MustTruth(), pod.UID) {
		if !i.Sandbox {
			t.Errorf("a container that could not be created left %v", i)
		}
	}
	if now := a.Stats(); now.Missed != before.Missed {
		t.Errorf("missed %d→%d by a container that could not be created", before.Missed, now.Missed)
	}
	t.Figure("failed create", "leaves nothing")
}

// waitPeriod waits until quiet has earned the agent a relist period of at least d.
func (a *Agent) waitPeriod(d time.Duration) {
	if !a.n.Traits.Events {
		return // polling goes on
	}
	a.n.t.Eventually(settle, fmt.Sprintf("the relist period reaches %v", d), func() error {
		if got := a.Stats().RelistPeriod; got < d {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}
