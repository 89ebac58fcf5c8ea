// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
)

// idle compares the costs of the agent and the runtime on an idle node, with the stream and by
// polling.
func idle(t *T) {
	n := t.NewNode()
	var names []string
	for p := range t.Size(50, 15) {
		names = append(names, fmt.Sprintf("idle%d", p))
	}
	for _, name := range names {
		pod := n.Pod(name)
		_, err := n.CreateAndStart(t.ctx, pod, crikit.Spec{Name: "c", Args: []string{"pause"}})
		t.Check(err)
	}
	length := time.Duration(t.Size(60, 10)) * time.Second
	calls := map[string]int{}
	spent := map[string]time.Duration{}
	if n.Daemon != nil {
		before, err := daemon.CPUTime(n.Daemon.PID())
		t.Check(err)
		t.Sleep(length)
		after, err := daemon.CPUTime(n.Daemon.PID())
		t.Check(err)
		t.Figure("no agent", "runtime %.1fms CPU in %v", millis(after-before), length)
	}
	for _, mode := range []string{worker.Evented, worker.Generic} {
		a := n.NewAgent(withoutWorkers, func(c *worker.Config) { c.Mode = mode })
		if mode == worker.Evented {
			a.WaitConnected()
			a.waitPeriod(time.Duration(t.Size(64, 8)) * time.Second)
		}
		a.Converge()
		before := n.Proxy.Calls()
		agentBefore, runtimeBefore := n.cpu(a)
		t.Sleep(length)
		agentAfter, runtimeAfter := n.cpu(a)
		after := n.Proxy.Calls()
		for method, count := range after {
			calls[mode] += count - before[method]
		}
		spent[mode] = agentAfter - agentBefore
		t.Figure(mode, "%d RPCs, agent %.1fms, runtime %.1fms CPU in %v", calls[mode],
			millis(agentAfter-agentBefore), millis(runtimeAfter-runtimeBefore), length)
		a.Kill()
	}
	// Polling makes a list of sandboxes and of containers a second, on a machine that is fast enough.
	// The stream must save nearly all of them, the project's purpose.
	if polls := 2 * int(length/time.Second); n.Traits.Events && calls["evented"]*4 > polls {
		t.Errorf("with the stream %d RPCs in %v, where polling makes %d: want less than a quarter", calls["evented"], length, polls)
	}
	t.Figure("pods", "%d", len(names))
	if spent["generic"] > 0 {
		t.Figure("agent CPU evented/generic", "%.2f", float64(spent["evented"])/float64(spent["generic"]))
	}
}

// cpu is the CPU time of the agent and the runtime's daemon so far; 0 for a foreign daemon.
func (n *Node) cpu(a *Agent) (ofAgent, ofRuntime time.Duration) {
	ofAgent, err := daemon.CPUTime(a.PID())
	n.t.Check(err)
	if n.Daemon != nil {
		ofRuntime, err = daemon.CPUTime(n.Daemon.PID())
		n.t.Check(err)
	}
	return ofAgent, ofRuntime
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
