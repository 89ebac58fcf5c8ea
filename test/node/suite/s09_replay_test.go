// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// replay lets the runtime queue events while nobody listens, for short-lived pods and for a lasting
// pod; the first subscriber gets all of them.
func replay(t *T) {
	n := t.NewNode()
	var old []string // gone IDs
	var uids []string
	history := time.Duration(t.Size(120, 15)) * time.Second
	stays := n.Pod("stays")
	restarts := []string{n.Container(stays, "c", "exit", "1")}
	n.Exited(restarts[0])
	began := time.Now()
	for p := 0; p < 5 || time.Since(began) < history; p++ {
		pod := n.Pod(fmt.Sprintf("gone%d", p))
		uids = append(uids, pod.UID)
		for _, ids := range n.Burst([]*crikit.Pod{pod}, 3, 3, "c", "exit", "0") {
			old = append(old, ids...)
			for _, id := range ids {
				n.Exited(id)
			}
		}
		t.Check(n.Delete(t.ctx, pod.SandboxID))
		old = append(old, pod.SandboxID)
		t.Sleep(time.Duration(t.Size(4000, 1000)) * time.Millisecond)
	}
	// The container of the lasting pod was made anew: its first is gone.
	t.Check(n.Remove(t.ctx, restarts[0]))
	old = append(old, restarts[0])
	runs, err := n.CreateAndStart(t.ctx, stays, crikit.Spec{Name: "c", Attempt: 1, Args: []string{"sleep", "1h"}})
	t.Check(err)

	a := n.NewAgent()
	a.WaitConnected()
	a.WaitEvent(bench.Running, runs)
	a.Converge()
	// Longer than the grace, in which a claim may still wait for its read.
	t.Sleep(5 * time.Second)
	a.Converge()
	events := a.Events()
	for _, id := range old {
		if told := types(events, id); len(told) > 0 {
			t.Errorf("%s was gone before the agent came, and it told %v", id, told)
		}
	}
	for _, uid := range uids {
		for _, e := range events {
			if e.Pod == uid {
				t.Errorf("an event for pod %s, which was gone before the agent came: %+v", uid, e)
			}
		}
	}
	g := a.Stats()
	t.Figure("history", "%v", time.Since(began).Round(time.Second))
	t.Figure("old IDs", "%d", len(old))
	t.Figure("claims replayed", "%d", g.ReplayedClaims)
	t.Figure("events told", "%d", len(events))
	if g.ReplayedClaims == 0 {
		t.Logf("this runtime replays no history")
	}
	if g.Missed > 0 {
		t.Errorf("%d changes counted as missed", g.Missed)
	}
	t.Check(n.Delete(context.WithoutCancel(t.ctx), stays.SandboxID))
	a.WaitEvent(bench.Removed, runs)
	a.Converge()
	t.waits(a)
}
