// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/server"
)

// Units of row churn, all but the rate and the parts for each change of the node. The cost of the
// agent's own calls without a PLEG is subtracted from agent and runtime.
const (
	unitAgent   = "agent-cpu-ns/op"
	unitRuntime = "runtime-cpu-ns/op"
	unitMade    = "changes/s"
	unitUntold  = "not-told-%"
	unitWatch   = "watch"  // -p50-ns and -p99-ns
	unitWait    = "worker" // likewise
	unitWaiting = "waiting"
	unitCalls   = "calls" // of the kinds with this prefix
)

// readCalls are the calls made only by a PLEG in row churn.
var readCalls = []string{"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"}

// churners are the contestants of row churn. The first of each name has no PLEG: its cost is the
// load itself.
var churners = []struct{ name, mode string }{
	{oursName, "none"}, {oursName, "told"}, {oursName, "evented"}, {oursName, "generic"},
	{kubelet136, "none"}, {kubelet136, "generic"}, {kubelet136, "evented"},
	{kubelet137, "none"}, {kubelet137, "generic"}, {kubelet137, "evented"},
}

// settling is how long a churn goes on before its measurement: two lists of a polling PLEG, and
// more.
const settling = 3 * time.Second

// churn measures the cost of changes on a node with pods that live, die and are replaced all the
// time, with a worker for each pod that waits for newer statuses as a kubelet's does.
func (b *bench) churn() error {
	for range max(1, b.rounds/2) {
		for _, pods := range []int{100, 1000} {
			for _, rate := range []int{100, 1000} {
				if err := b.churnOf(pods, rate, settling, b.window); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// churnOf measures a load for all contestants.
func (b *bench) churnOf(pods, rate int, settle, window time.Duration) error {
	var load map[string]span
	for _, c := range churners {
		if !slices.Contains(b.agents, c.name) {
			continue
		}
		s, err := b.churnWith(c.name, c.mode, pods, rate, settle, window)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.name, c.mode, err)
		}
		if c.mode == "none" {
			load = map[string]span{c.name: s}
		}
		s.enter(b.of("churn", fmt.Sprintf("pods=%d/changes/s=%d/%s", pods, rate, c.mode), c.name), load[c.name])
	}
	return nil
}

// span is the measurements of a window of churn.
type span struct {
	agent.Cost
	runtime time.Duration
	changes float64
	calls   map[string]uint64
	// told and waits are the latencies of Watch and of pod workers, untold the changes without an
	// event on Watch, waiting the workers still waiting in the end.
	told, waits     []int64
	untold, waiting int
}

// churnWith measures a contestant.
func (b *bench) churnWith(name, mode string, pods, rate int, settle, window time.Duration) (s span, err error) {
	// A kubelet's PLEG is ready after its first pod.
	err = b.on(server.Config{Pods: 1, Containers: 1}, mode, []string{name}, func(r *runtimeProcess, all []*contestant) error {
		a := all[0]
		if _, err := a.do(agent.Request{Op: "churn", N: rate, Pods: pods}); err != nil {
			return err
		}
		time.Sleep(settle)
		return b.profiled(a, fmt.Sprintf("churn-%d-%d-%s", pods, rate, mode), func() error {
			s, err = watchChurn(r, a, window, max(settling, settle))
			return err
		})
	})
	return s, err
}

// watchChurn measures for the duration, and ends the churn. Changes not reported by then have as
// long to come.
func watchChurn(r *runtimeProcess, a *contestant, window, patience time.Duration) (s span, err error) {
	if _, err := a.do(agent.Request{Op: "mark"}); err != nil {
		return s, err
	}
	before, err := r.do(server.Request{Op: "usage"})
	if err != nil {
		return s, err
	}
	time.Sleep(window)
	since, err := a.do(agent.Request{Op: "since"})
	if err != nil {
		return s, err
	}
	after, err := r.do(server.Request{Op: "usage"})
	if err != nil {
		return s, err
	}
	if _, err := a.do(agent.Request{Op: "calm"}); err != nil {
		return s, err
	}
	history, err := r.do(server.Request{Op: "history", From: before.Changed})
	if err != nil {
		return s, err
	}
	s = span{
		Cost: since.Cost, runtime: after.CPU - before.CPU, changes: float64(after.Changed - before.Changed), calls: make(map[string]uint64),
		waits: since.Latencies,
	}
	if s.changes == 0 {
		return s, fmt.Errorf("nothing has changed in %v", window)
	}
	for name, n := range after.Calls {
		s.calls[name] = n - before.Calls[name]
	}
	changes := slices.DeleteFunc(history.History, func(c server.Change) bool { return c.Number >= after.Changed-before.Changed })
	var told []agent.Told
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		watch, err := a.do(agent.Request{Op: "watch"})
		if err != nil {
			return s, err
		}
		told = append(told, watch.Told...)
		calm, err := a.do(agent.Request{Op: "calm"})
		if err != nil {
			return s, err
		}
		s.waiting = calm.Waiting
		s.match(changes, told)
		if s.untold == 0 && s.waiting == 0 || time.Now().After(deadline) {
			return s, nil
		}
	}
}

// match finds when Watch told of each of the changes.
func (s *span) match(changes []server.Change, told []agent.Told) {
	type event struct{ id, kind string }
	at := make(map[event]int64, len(told))
	for _, t := range told {
		if e := (event{t.ID, t.Kind}); at[e] == 0 {
			at[e] = t.At
		}
	}
	s.told, s.untold = s.told[:0], 0
	for _, c := range changes {
		if t := at[event{c.ID, c.Kind}]; t != 0 {
			s.told = append(s.told, t-c.At)
		} else {
			s.untold++
		}
	}
}

// enter adds the span to a result, less the cost of the load itself.
func (s span) enter(r *result, load span) {
	per := func(n time.Duration, changes float64) float64 { return float64(n) / changes }
	agentCPU, runtimeCPU := per(s.CPU, s.changes), per(s.runtime, s.changes)
	if !strings.HasSuffix(r.Case, "/none") {
		agentCPU -= per(load.CPU, load.changes)
		runtimeCPU -= per(load.runtime, load.changes)
	}
	r.add(unitAgent, agentCPU)
	r.add(unitRuntime, runtimeCPU)
	r.add(unitMade, s.changes/s.Wall.Seconds())
	for _, name := range readCalls {
		r.add(unitCalls+" "+name+"/op", float64(s.calls[name])/s.changes)
	}
	if strings.HasSuffix(r.Case, "/none") {
		return
	}
	r.add(unitUntold, 100*float64(s.untold)/float64(max(1, s.untold+len(s.told))))
	r.quantiles(unitWatch, s.told)
	r.quantiles(unitWait, s.waits)
	r.add(unitWaiting, float64(s.waiting))
}

// quantiles adds those of latencies in nanoseconds, if there are any.
func (r *result) quantiles(what string, all []int64) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	r.add(what+"-p50-ns", quantile(all, 0.5))
	r.add(what+"-p99-ns", quantile(all, 0.99))
}
