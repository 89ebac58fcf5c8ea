// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

// Sizes of rows; tests shrink them.
var (
	shrink = flag.Int("shrink", 1, "divide the number of pods of every row, and its work, by this")
	idle   = flag.Duration("idle", 5*time.Minute, "length of each of the two windows of row idle")
	only   = flag.String("agent", "", "measure this contestant alone")
	window = flag.Duration("window", 10*time.Second, "length of a measurement of row churn")
)

// The contestants.
const (
	Floor      = "floor"
	Generated  = "generated"
	Ours       = "ours"
	Kubelet136 = "kubelet-v1.36.3"
	Kubelet137 = "kubelet-v1.37.1"
)

// Row is a row of the table in docs/performance.md.
type Row struct {
	Name string
	// Agents take part.
	Agents []string
	// Run is the row's benchmark.
	Run func(b *testing.B, driver func() Driver)
}

// Bench runs the rows of a contestant.
func Bench(b *testing.B, name string, driver func() Driver) {
	for _, r := range Rows() {
		if slices.Contains(r.Agents, name) && (*only == "" || *only == name) {
			b.Run(r.Name+"/agent="+name, func(b *testing.B) { r.Run(b, driver) })
		}
	}
}

// size returns a number of the documents, shrunk.
func size(n int) int { return max(1, n / *shrink) }

// on returns a row's benchmark: f on a node with pods of two containers.
func on(c Config, mode string, f func(*node)) func(*testing.B, func() Driver) {
	return func(b *testing.B, driver func() Driver) {
		c := c
		c.Pods, c.Containers = size(c.Pods), 2
		n := newNode(b, c)
		n.start(driver(), mode, c.Streams)
		f(n)
	}
}

// Rows returns all rows.
func Rows() []Row {
	everybody := []string{Floor, Generated, Ours, Kubelet136, Kubelet137}
	plegs, older := everybody[2:], everybody[2:4]
	var rows []Row
	for _, pods := range []int{500, 2500, 5000} {
		rows = append(rows, Row{
			fmt.Sprintf("relist/containers=%d", 2*pods), everybody,
			on(Config{Pods: pods}, "manual", relist(max(10, 50_000/pods))),
		})
	}
	rows = append(rows,
		// the streaming list calls are unused by the kubelet by default
		Row{"streaming/containers=10000", []string{Floor, Ours, Kubelet136}, on(Config{Pods: 5000, Streams: true}, "manual", relist(10))},
		Row{"changed/containers=10000", plegs, on(Config{Pods: 5000}, "manual", changed)},
		Row{"intake/exit", everybody[:4], on(Config{Pods: 5000}, "intake", intake)},
		Row{"first/pods=5000", older, on(Config{Pods: 5000, Delay: time.Millisecond}, "manual", first)},
		Row{"newer/pods=500", []string{Ours}, on(Config{Pods: 500}, "evented", newer)},
		Row{"newer/pods=500", everybody[3:], on(Config{Pods: 500}, "generic", newer)},
		Row{"latency/evented/changes/s=1000", plegs, on(Config{Pods: 5000}, "evented", latency)},
		Row{"latency/generic/changes/s=1000", older, on(Config{Pods: 5000}, "generic", latency)},
		Row{"memory/containers=10000", []string{Kubelet136}, on(Config{Pods: 5000}, "manual", memory)},
		Row{"memory/containers=10000", []string{Ours}, on(Config{Pods: 5000, Streams: true}, "manual", memory)},
		Row{"memory/containers=100000", []string{Ours}, on(Config{Pods: 50_000, Streams: true}, "manual", memory)},
	)
	for _, period := range []string{"from-start", "later"} {
		rows = append(rows,
			Row{"idle/evented/" + period, plegs, idleNode("evented", period == "later")},
			Row{"idle/generic/" + period, older, idleNode("generic", period == "later")})
	}
	for _, pods := range []int{100, 1000} {
		for _, rate := range []int{100, 1000} {
			name := fmt.Sprintf("churn/pods=%d/changes/s=%d/", pods, rate)
			rows = append(rows,
				Row{name + "told", []string{Ours}, churning(pods, rate, "told")},
				Row{name + "evented", plegs, churning(pods, rate, "evented")},
				Row{name + "generic", plegs, churning(pods, rate, "generic")})
		}
	}
	return rows
}

// relist measures lists of a node on which nothing changes.
func relist(times int) func(*node) {
	return func(n *node) {
		n.relist(3) // the first inspects every pod
		n.cost(n.measured(func() { n.relist(size(times)) }), size(times))
	}
}

// changed measures lists of a node with 1 % of the containers changed since the list before, with
// their inspection.
func changed(n *node) {
	n.relist(3)
	n.do(Request{Op: "exit", N: size(100)})
	n.cost(n.measured(func() { n.relist(1) }), 1)
}

// intake measures the event stream: every container of the node exits as fast as the runtime can.
func intake(n *node) {
	exits, before := 2*size(5000), n.driver.Handled()
	n.cost(n.measured(func() {
		n.do(Request{Op: "exit", N: exits})
		n.wait("every event", func() bool { return n.driver.Handled()-before >= int64(exits) })
	}), exits)
}

// first measures the first list of a node on a runtime with slow status calls.
func first(n *node) { n.cost(n.measured(func() { n.relist(1) }), 1) }

// newer measures how long a pod worker waits for a status of its pod newer than now.
func newer(n *node) {
	uids := n.do(Request{Op: "uids"}).UIDs
	var latencies []int64
	for i := range size(500) {
		start := time.Now()
		n.must(n.driver.Newer(uids[i%len(uids)], start))
		latencies = append(latencies, int64(time.Since(start)))
		time.Sleep(7 * time.Millisecond)
	}
	n.quantiles("", latencies)
}

// latency measures the time from a container's exit to its event on Watch, at 1000 exits a second.
func latency(n *node) {
	time.Sleep(*window / 5) // the effects of the start have ended
	n.watched()
	n.do(Request{Op: "exit", N: size(8000), Rate: 1000})
	time.Sleep(*window/10 + 2*time.Second) // two periods of a polling PLEG, and more
	delivered, lost := match(n.do(Request{Op: "history"}).History, n.watched())
	n.quantiles("", delivered)
	n.b.ReportMetric(float64(lost), "lost")
}

// match returns the latencies of changes on Watch, and the number of changes without an event.
func match(changes []Change, events []told) (delivered []int64, lost int) {
	type event struct{ id, kind string }
	at := make(map[event]int64, len(events))
	for _, t := range events {
		if e := (event{t.id, t.kind}); at[e] == 0 {
			at[e] = t.at
		}
	}
	for _, c := range changes {
		if t := at[event{c.ID, c.Kind}]; t != 0 {
			delivered = append(delivered, t-c.At)
		} else {
			lost++
		}
	}
	return delivered, lost
}

// memory measures the live heap on big nodes, and the statuses in it.
func memory(n *node) {
	n.relist(3)
	n.watched() // no longer kept
	heap := live()
	statuses, err := n.driver.Footprint()
	n.must(err)
	containers := float64(2 * len(n.do(Request{Op: "uids"}).UIDs))
	n.b.ReportMetric(float64(heap)/containers, "B/container")
	n.b.ReportMetric(float64(statuses)/containers, "status-B/container")
	n.b.ReportMetric(float64(heap-statuses)/containers, "other-B/container")
}

// idleNode measures the cost of an idle node. The fake runtime builds every answer like real
// runtimes. The first window begins at the contestant's start; the later, right after it, shows the
// cost with earned trust.
func idleNode(mode string, later bool) func(*testing.B, func() Driver) {
	return on(Config{Pods: 500}, mode, func(n *node) {
		if later {
			time.Sleep(*idle)
		}
		before := n.do(Request{Op: "usage"}).CPU
		begin := used() // without a collection, which an idle agent runs at its own times
		time.Sleep(*idle)
		c := begin.since()
		n.cost(c, 1)
		n.b.ReportMetric(float64(c.cpu+n.do(Request{Op: "usage"}).CPU-before), "total-cpu-ns")
	})
}
