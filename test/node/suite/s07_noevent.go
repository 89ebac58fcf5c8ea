// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"fmt"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// noEvent makes changes that the runtime never tells: a container that fails to
// start, and an exit while the runtime is down.
func noEvent(t *T) {
	n := t.NewNode()
	a := n.NewAgent("--relist-max", "8s", "--truth", "", "--stable-after", "2s")
	a.WaitConnected()
	pod := n.Pod("pod")
	a.WaitEvent(pleg.ContainerStarted, pod.SandboxID)
	a.waitPeriod(8 * time.Second)

	id, err := n.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"})
	t.Check(err)
	before := a.MustStats().Generator
	if err := n.Start(t.ctx, id); err == nil {
		t.Fatalf("a container with a command that does not exist started")
	}
	failed := time.Now()
	died := a.WaitEvent(pleg.ContainerDied, id)
	took := died.At.Sub(failed)
	if died.Cause != pleg.CauseRead.String() {
		t.Errorf("the failed start was found by a %s, and the runtime tells no event", died.Cause)
	}
	if took > before.RelistPeriod+settle {
		t.Errorf("the failed start was found after %v, with a relist period of %v", took, before.RelistPeriod)
	}
	t.Eventually(settle, "the failed start is counted as missed", func() error {
		if now := a.MustStats().Generator; now.Missed != before.Missed+1 {
			return fmt.Errorf("missed %d, before %d", now.Missed, before.Missed)
		}
		return nil
	})
	after := a.MustStats().Generator
	if after.RelistPeriod >= before.RelistPeriod {
		t.Errorf("the period stayed at %v after a missed event", after.RelistPeriod)
	}
	a.Converge()
	t.Figure("failed start→Watch", "%.1fs (period %v)", took.Seconds(), before.RelistPeriod)

	if n.Daemon == nil {
		t.Figure("exit while down", "not applicable: the runtime is not ours to stop")
		return
	}
	silent := n.Container(pod, "silent", "sleep", "500ms", "9")
	a.WaitEvent(pleg.ContainerStarted, silent)
	before = a.MustStats().Generator
	n.StopRuntime(syscall.SIGKILL)
	t.Sleep(2 * time.Second)
	back := time.Now()
	n.StartRuntime()
	died = a.WaitEvent(pleg.ContainerDied, silent)
	a.Converge()
	t.Figure("exit while down→Watch", "%dms after its start, by a %s", died.At.Sub(back).Milliseconds(), died.Cause)
	held := a.MustCache()[pod.UID].Containers[silent]
	t.Figure("told as", "%d %s", held.ExitCode, held.Reason)
	a.WaitConnected()
	t.Eventually(settle, "the exit while the runtime was down is counted as missed", func() error {
		if now := a.MustStats().Generator; now.Missed != before.Missed+1 {
			return fmt.Errorf("missed %d, before %d", now.Missed, before.Missed)
		}
		return nil
	})
}

// waitPeriod waits until quiet has earned the agent a relist period of at least d.
func (a *Agent) waitPeriod(d time.Duration) {
	a.n.t.Eventually(settle, fmt.Sprintf("the relist period reaches %v", d), func() error {
		if got := a.MustStats().Generator.RelistPeriod; got < d {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}
