// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/server"
)

// idler is an idle contestant, with its own runtime.
type idler struct {
	name, mode string
	runtime    *runtimeProcess
	agent      *contestant
	before     time.Duration // the runtime's usage before
}

// idleNode measures the cost of an idle node: 500 pods with 2 containers on the fake runtime, which
// builds every answer like real runtimes. All contestants idle at the same time, each with its own
// runtime. The first window begins at the contestant's start; the second, right after it, shows the
// cost with earned trust.
func (b *bench) idleNode() error {
	var all []*idler
	defer func() {
		for _, i := range all {
			if i.agent != nil {
				i.agent.end()
			}
			i.runtime.end()
		}
	}()
	for _, c := range []idler{
		{name: oursName, mode: "evented"}, {name: oursName, mode: "generic"},
		{name: kubelet136, mode: "generic"}, {name: kubelet136, mode: "evented"}, {name: kubelet137, mode: "evented"},
	} {
		if !slices.Contains(b.agents, c.name) {
			continue
		}
		r, err := b.runtime(server.Config{Pods: 500, Containers: 2})
		if err != nil {
			return err
		}
		i := &idler{name: c.name, mode: c.mode, runtime: r}
		all = append(all, i)
		if i.agent, err = b.contestant(c.name, c.mode, r); err != nil {
			return err
		}
	}
	for _, window := range []string{"from-start", "later"} {
		if err := b.idleWindow(all, window); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) idleWindow(all []*idler, window string) error {
	for _, i := range all {
		usage, err := i.runtime.do(server.Request{Op: "usage"})
		if err != nil {
			return err
		}
		i.before = usage.CPU
	}
	ended := make(chan error, len(all))
	for _, i := range all {
		result := b.of("idle", fmt.Sprintf("%s/%v/%s", window, b.idle, i.mode), i.name)
		go func() {
			reply, err := i.agent.do(agent.Request{Op: "idle", Millis: int(b.idle.Milliseconds())})
			if err != nil {
				ended <- err
				return
			}
			usage, err := i.runtime.do(server.Request{Op: "usage"})
			result.cost(reply.Cost, 1)
			result.add(unitTotal, float64(reply.CPU+usage.CPU-i.before))
			ended <- err
		}()
	}
	var first error
	for range all {
		if err := <-ended; first == nil {
			first = err
		}
	}
	return first
}
