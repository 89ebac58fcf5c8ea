// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// told is an event of Watch.
type told struct {
	id, kind string
	at       int64 // Unix nanoseconds when it was received
}

// node is a runtime with a started driver, in the benchmark of a row.
type node struct {
	b       *testing.B
	driver  Driver
	runtime *Runtime

	mu    sync.Mutex // owns the fields below
	told  []told
	churn *churn // nil: pods stay as they are
}

// newNode starts a runtime, which ends with the benchmark.
func newNode(b *testing.B, c Config) *node {
	r, err := StartRuntime(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.End(); err != nil {
			b.Error(err)
		}
	})
	return &node{b: b, runtime: r}
}

// start starts a driver, and waits until it is at work.
func (n *node) start(d Driver, mode string, streams bool) {
	o := Options{Socket: n.runtime.Socket, Mode: mode, Streams: streams}
	n.driver = d
	n.must(d.Start(o))
	go d.Drain(n.tell) // ends with the process
	if mode == "manual" {
		return
	}
	n.wait("the first list and the stream", d.Ready)
	if o.streams() {
		n.wait("a subscriber", func() bool { return n.do(Request{Op: "usage"}).Subscribers > 0 })
	}
}

// tell records an event of Watch.
func (n *node) tell(pod, id, kind string) {
	t := told{id, kind, time.Now().UnixNano()}
	n.mu.Lock()
	n.told = append(n.told, t)
	c := n.churn
	n.mu.Unlock()
	if c != nil {
		c.told(pod, kind)
	}
}

// follow lets the churn know of the events of Watch.
func (n *node) follow(c *churn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.churn = c
}

// watched returns and forgets the events of Watch.
func (n *node) watched() []told {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.told
	n.told = nil
	return all
}

func (n *node) must(err error) {
	n.b.Helper()
	if err != nil {
		n.b.Fatal(err)
	}
}

// do gives the runtime an order.
func (n *node) do(order Request) Reply {
	n.b.Helper()
	reply, err := n.runtime.Do(order)
	n.must(err)
	return reply
}

// patience bounds every wait.
const patience = 2 * time.Minute

// wait looks every few milliseconds, which costs every driver the same.
func (n *node) wait(what string, done func() bool) {
	n.b.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.b.Fatalf("%s did not come within %v", what, patience)
		}
	}
}

// measured returns the cost of f, which begins with an empty heap.
func (n *node) measured(f func()) cost {
	runtime.GC()
	begin := used()
	f()
	return begin.since()
}

// cost reports the cost of an operation, by the cost of some.
func (n *node) cost(c cost, operations int) {
	per := float64(operations)
	n.b.ReportAllocs()
	n.b.ReportMetric(float64(c.cpu)/per, "cpu-ns/op")
	n.b.ReportMetric(float64(c.wall)/per, "ns/op")
	n.b.ReportMetric(float64(c.bytes)/per, "B/op")
	n.b.ReportMetric(float64(c.objects)/per, "allocs/op")
	n.b.ReportMetric(float64(c.wakeups)/per, "wakeups/op")
}

// quantiles reports those of latencies, if there are any.
func (n *node) quantiles(prefix string, latencies []int64) {
	if len(latencies) == 0 {
		return
	}
	n.b.ReportMetric(quantile(latencies, 0.5), prefix+"p50-ns")
	n.b.ReportMetric(quantile(latencies, 0.99), prefix+"p99-ns")
	n.b.ReportMetric(quantile(latencies, 1), prefix+"max-ns")
}

func (n *node) relist(times int) {
	for range times {
		n.must(n.driver.Relist())
	}
}
