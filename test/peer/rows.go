// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/server"
)

// row is a row of the table in docs/performance.md.
type row struct {
	name    string
	measure func(*bench) error
}

var allRows = []row{
	{"relist", (*bench).relist},
	{"streaming", (*bench).relistStreaming},
	{"changed", (*bench).changed},
	{"intake", (*bench).intake},
	{"first", (*bench).first},
	{"newer", (*bench).newer},
	{"latency", (*bench).latency},
	{"memory", (*bench).memory},
	{"idle", (*bench).idleNode},
	{"churn", (*bench).churn},
}

func rowNames() []string {
	var names []string
	for _, r := range allRows {
		names = append(names, r.name)
	}
	return names
}

// streaming is the suffix of contestants with the streaming list calls.
const streaming = "-streaming"

// among returns the participating ones of the named contestants.
func (b *bench) among(names ...string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(b.agents, n) })
}

// turns returns the order of turns in the round: every other round goes the other way, since the
// first may be dearer.
func turns[T any](all []T, round int) []T {
	all = slices.Clone(all)
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// on starts a runtime and some contestants, runs f, and ends them all.
func (b *bench) on(c server.Config, mode string, names []string, f func(*runtimeProcess, []*contestant) error) (err error) {
	r, err := b.runtime(c)
	if err != nil {
		return err
	}
	defer r.end()
	var all []*contestant
	defer func() {
		for _, c := range all {
			c.end()
		}
	}()
	for _, name := range names {
		c, err := b.contestant(name, mode, r)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	return f(r, all)
}

// profiled runs f while the contestant takes a CPU profile, if profiles are wanted.
func (b *bench) profiled(c *contestant, name string, f func() error) error {
	if b.profiles == "" {
		return f()
	}
	if _, err := c.do(agent.Request{Op: "profile", Mode: filepath.Join(b.profiles, name+"-"+c.name+".pprof")}); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	_, err := c.do(agent.Request{Op: "profile"})
	return err
}

// relistOf measures lists of a node on which nothing changes.
func (b *bench) relistOf(row string, c server.Config, what string, names []string, times int) error {
	return b.on(c, "manual", names, func(_ *runtimeProcess, all []*contestant) error {
		for _, c := range all {
			if _, err := c.do(agent.Request{Op: "relist", N: 3}); err != nil { // the first inspects every pod
				return err
			}
		}
		for round := range b.rounds {
			for _, c := range turns(all, round) {
				// begins with an empty heap, whatever went before
				if _, err := c.do(agent.Request{Op: "mark"}); err != nil {
					return err
				}
				err := b.profiled(c, row+"-"+what, func() error {
					reply, err := c.do(agent.Request{Op: "relist", N: times})
					b.of(row, what, c.name).cost(reply.Cost, times)
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (b *bench) relist() error {
	for _, pods := range []int{500, 2500, 5000} {
		what := fmt.Sprintf("containers=%d", 2*pods)
		if err := b.relistOf("relist", server.Config{Pods: pods, Containers: 2}, what, slices.Clone(b.agents), max(10, 50_000/pods)); err != nil {
			return err
		}
	}
	return nil
}

// relistStreaming is the same on a runtime with the streaming list calls, unused by the kubelet by
// default.
func (b *bench) relistStreaming() error {
	names := b.among(oursName, kubelet136)
	if slices.Contains(b.agents, floorName) {
		names = append(names, floorName+streaming)
	}
	return b.relistOf("streaming", server.Config{Pods: 5000, Containers: 2, Streams: true}, "containers=10000", names, 10)
}

// changed measures lists of a node with 1 % of the containers changed since the list before, with
// their inspection.
func (b *bench) changed() error {
	const pods, change = 5000, 100
	what := fmt.Sprintf("containers=%d", 2*pods)
	names := b.among(oursName, kubelet136, kubelet137)
	return b.on(server.Config{Pods: pods, Containers: 2}, "manual", names, func(r *runtimeProcess, all []*contestant) error {
		for _, c := range all {
			if _, err := c.do(agent.Request{Op: "relist", N: 3}); err != nil {
				return err
			}
		}
		for round := range 3 * b.rounds {
			if _, err := r.do(server.Request{Op: "exit", N: change}); err != nil {
				return err
			}
			for _, c := range turns(all, round) {
				if _, err := c.do(agent.Request{Op: "mark"}); err != nil {
					return err
				}
				reply, err := c.do(agent.Request{Op: "relist", N: 1})
				if err != nil {
					return err
				}
				b.of("changed", what, c.name).cost(reply.Cost, 1)
			}
		}
		return nil
	})
}

// intake measures the event stream: exits of containers with the statuses that go with them.
func (b *bench) intake() error {
	const pods = 5000
	for round := range b.rounds {
		for _, name := range turns(b.among(floorName, generated, oursName, kubelet136), round) {
			if err := b.intakeOf(name, server.Config{Pods: pods, Containers: 2}); err != nil {
				return err
			}
		}
	}
	return nil
}

// intakeOf lets every container of a node exit as fast as the runtime can.
func (b *bench) intakeOf(name string, config server.Config) error {
	n := config.Pods * config.Containers
	return b.on(config, "intake", []string{name}, func(r *runtimeProcess, all []*contestant) error {
		return b.profiled(all[0], "intake", func() error {
			if _, err := all[0].do(agent.Request{Op: "mark"}); err != nil {
				return err
			}
			if _, err := r.do(server.Request{Op: "exit", N: n}); err != nil {
				return err
			}
			reply, err := all[0].do(agent.Request{Op: "await", N: n})
			b.of("intake", "exit", name).cost(reply.Cost, n)
			return err
		})
	})
}

// first measures the first list of a node on a runtime with status calls of 1 ms.
func (b *bench) first() error {
	const pods = 5000
	what := fmt.Sprintf("pods=%d", pods)
	for round := range max(1, b.rounds/3) {
		for _, name := range turns(b.among(oursName, kubelet136), round) {
			config := server.Config{Pods: pods, Containers: 2, Delay: time.Millisecond}
			err := b.on(config, "manual", []string{name}, func(_ *runtimeProcess, all []*contestant) error {
				reply, err := all[0].do(agent.Request{Op: "relist", N: 1})
				b.of("first", what, name).cost(reply.Cost, 1)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// newer measures how long a pod worker waits for a status of its pod newer than now.
func (b *bench) newer() error {
	const pods, times = 500, 500
	what := fmt.Sprintf("pods=%d", pods)
	for round := range max(1, b.rounds/2) {
		for _, name := range turns(b.among(oursName, kubelet136, kubelet137), round) {
			mode := "generic"
			if name == oursName {
				mode = "evented"
			}
			err := b.on(server.Config{Pods: pods, Containers: 2}, mode, []string{name}, func(r *runtimeProcess, all []*contestant) error {
				uids, err := r.do(server.Request{Op: "uids"})
				if err != nil {
					return err
				}
				reply, err := all[0].do(agent.Request{Op: "newer", N: times, Millis: 7, UIDs: uids.UIDs})
				if err == nil {
					b.of("newer", what, name).latencies(reply.Latencies)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// latency measures the time from a container's exit to its event on Watch, at 1000 exits a second.
func (b *bench) latency() error {
	const pods, rate, seconds = 5000, 1000, 8
	everyone := []struct{ name, mode string }{
		{oursName, "evented"}, {oursName, "generic"},
		{kubelet136, "generic"}, {kubelet136, "evented"}, {kubelet137, "evented"},
	}
	for round := range max(1, b.rounds/2) {
		for _, c := range turns(everyone, round) {
			if !slices.Contains(b.agents, c.name) {
				continue
			}
			if err := b.latencyOf(c.name, c.mode, server.Config{Pods: pods, Containers: 2}, rate, rate*seconds); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) latencyOf(name, mode string, config server.Config, rate, count int) error {
	return b.on(config, mode, []string{name}, func(r *runtimeProcess, all []*contestant) error {
		time.Sleep(2 * time.Second) // the effects of the start have ended
		if _, err := all[0].do(agent.Request{Op: "watch"}); err != nil {
			return err
		}
		if _, err := r.do(server.Request{Op: "exit", N: count, Rate: rate}); err != nil {
			return err
		}
		time.Sleep(3 * time.Second)
		reply, err := all[0].do(agent.Request{Op: "watch"})
		if err != nil {
			return err
		}
		changes, err := r.do(server.Request{Op: "history"})
		if err != nil {
			return err
		}
		var s span
		s.match(changes.History, reply.Told)
		result := b.of("latency", mode+"/changes/s=1000", name)
		if len(s.told) > 0 {
			result.latencies(s.told)
		}
		result.add("lost", float64(s.untold))
		return nil
	})
}

// memory measures the live heap on big nodes, less the statuses themselves.
func (b *bench) memory() error {
	type size struct {
		pods int
		name string
	}
	for _, s := range []size{{5000, kubelet136}, {5000, oursName}, {50_000, oursName}} {
		if !slices.Contains(b.agents, s.name) {
			continue
		}
		containers := 2 * s.pods
		err := b.on(server.Config{Pods: s.pods, Containers: 2, Streams: s.name == oursName}, "manual", []string{s.name}, func(_ *runtimeProcess, all []*contestant) error {
			if _, err := all[0].do(agent.Request{Op: "relist", N: 3}); err != nil {
				return err
			}
			// what Watch told is no longer kept
			if _, err := all[0].do(agent.Request{Op: "watch"}); err != nil {
				return err
			}
			profile := ""
			if b.profiles != "" {
				profile = filepath.Join(b.profiles, fmt.Sprintf("heap-%d-%s.pprof", containers, s.name))
			}
			reply, err := all[0].do(agent.Request{Op: "heap", Mode: profile})
			if err != nil {
				return err
			}
			b.of("memory", fmt.Sprintf("containers=%d/all", containers), s.name).add(unitHeap, float64(reply.Heap)/float64(containers))
			b.of("memory", fmt.Sprintf("containers=%d/statuses", containers), s.name).add(unitHeap, float64(reply.Statuses)/float64(containers))
			b.of("memory", fmt.Sprintf("containers=%d/beyond", containers), s.name).add(unitHeap, float64(reply.Heap-reply.Statuses)/float64(containers))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
