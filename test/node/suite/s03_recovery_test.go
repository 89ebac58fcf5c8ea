// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// recovery kills the agent while a container runs; the container ends while no
// agent is there; the next agent must tell its end and its exit code.
func recovery(t *T) {
	n := t.NewNode()
	for round, code := range []int32{0, 7} {
		before := n.NewAgent()
		before.WaitConnected()
		pod := n.Pod([]string{"first", "second"}[round])
		id, pid := n.Mortal(pod, "c", code)
		before.WaitEvent(bench.Running, id)
		before.Kill()
		n.End(id, pid)
		if status := n.Exited(id); status.ExitCode != code {
			t.Fatalf("the runtime says exit code %d, want %d", status.ExitCode, code)
		}
		began := time.Now()
		after := n.NewAgent()
		event := after.WaitEvent(bench.Exited, id)
		t.Figure("restart→Watch", "%dms", since(began, event.At).Milliseconds())
		held := bench.Find(after.Cache(), pod.UID, id)
		if held.State != bench.Exited || held.ExitCode != code || (code == 0) != (held.Reason == "Completed") {
			t.Errorf("the restarted agent holds %v, want exit code %d", held, code)
		}
		after.Converge()
		after.WaitConnected()
		after.Kill()
	}
}
