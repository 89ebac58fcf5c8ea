// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/server"
)

// The processes of a run are this binary once more.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "agent") {
		main()
		return
	}
	os.Exit(m.Run())
}

func newBench(t *testing.T) *bench {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "peer-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &bench{self: self, dir: dir, agents: []string{floorName, generated, oursName}, rounds: 2}
}

// small is a small node.
var small = server.Config{Pods: 20, Containers: 2}

func TestRelistsAreMeasured(t *testing.T) {
	b := newBench(t)
	for _, streams := range []bool{false, true} {
		c := small
		c.Streams = streams
		names := []string{floorName, generated, oursName}
		if streams {
			names = []string{floorName + streaming, oursName}
		}
		if err := b.relistOf("relist", c, "small", names, 3); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{floorName, floorName + streaming, generated, oursName} {
		r := b.of("relist", "small", name)
		if r.median(unitCPU) <= 0 || r.median(unitObjects) <= 0 || len(r.Values[unitWall]) < 2 {
			t.Errorf("%s: %v", name, r.Values)
		}
	}
	if floor, all := b.of("relist", "small", floorName).median(unitBytes), b.of("relist", "small", generated).median(unitBytes); floor >= all {
		t.Errorf("receiving alone allocates %v bytes, receiving and decoding %v", floor, all)
	}
}

func TestChangesAreInspectedAndTold(t *testing.T) {
	b := newBench(t)
	err := b.on(small, "manual", []string{oursName}, func(r *runtimeProcess, all []*contestant) error {
		if _, err := all[0].do(agent.Request{Op: "relist", N: 2}); err != nil {
			return err
		}
		before, err := r.do(server.Request{Op: "usage"})
		if err != nil {
			return err
		}
		if _, err := r.do(server.Request{Op: "exit", N: 3}); err != nil {
			return err
		}
		if _, err := all[0].do(agent.Request{Op: "relist", N: 1}); err != nil {
			return err
		}
		after, err := r.do(server.Request{Op: "usage"})
		if err != nil {
			return err
		}
		if n := after.Calls["ContainerStatus"] - before.Calls["ContainerStatus"]; n != 3 {
			t.Errorf("3 pods, in each of which one container of 2 has changed, took %d status calls, want 3", n)
		}
		told, err := all[0].do(agent.Request{Op: "watch"})
		died := slices.DeleteFunc(told.Told, func(e agent.Told) bool { return e.Kind != "ContainerDied" })
		if len(died) != 3 {
			t.Errorf("Watch told of %d deaths, want 3", len(died))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEventsAreTakenAndTold(t *testing.T) {
	b := newBench(t)
	for _, name := range b.agents {
		if err := b.intakeOf(name, small); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []string{"evented", "generic"} {
		if err := b.latencyOf(oursName, mode, small, 1000, 40); err != nil {
			t.Fatal(err)
		}
		if lost := b.of("latency", mode+"/changes/s=1000", oursName).median("lost"); lost != 0 {
			t.Errorf("%s: %v changes of 40 were told by nobody", mode, lost)
		}
	}
}

func TestIdleNodesAndWorkersAreMeasured(t *testing.T) {
	b := newBench(t)
	b.idle = 50 * time.Millisecond
	if err := b.idleNode(); err != nil {
		t.Fatal(err)
	}
	err := b.on(small, "evented", []string{oursName}, func(r *runtimeProcess, all []*contestant) error {
		uids, err := r.do(server.Request{Op: "uids"})
		if err != nil {
			return err
		}
		reply, err := all[0].do(agent.Request{Op: "newer", N: 30, UIDs: uids.UIDs})
		if len(reply.Latencies) != 30 {
			t.Errorf("%d calls of 30 were answered", len(reply.Latencies))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := b.lines(&out); err != nil || !strings.HasPrefix(out.String(), "BenchmarkPeer/idle/from-start/") {
		t.Errorf("lines for benchstat: %q, %v", out.String(), err)
	}
}

// TestMemoryIsMeasured asks an otherwise idle agent, on a node with statuses larger than the chance
// content of pools and buffers.
func TestMemoryIsMeasured(t *testing.T) {
	const containers = 1000
	err := newBench(t).on(server.Config{Pods: containers / 2, Containers: 2}, "manual", []string{oursName}, func(_ *runtimeProcess, all []*contestant) error {
		if _, err := all[0].do(agent.Request{Op: "relist", N: 2}); err != nil {
			return err
		}
		heap, err := all[0].do(agent.Request{Op: "heap"})
		if heap.Statuses < 1000*containers || heap.Heap < heap.Statuses {
			t.Errorf("of %d containers the heap has %d bytes, and %d of statuses", containers, heap.Heap, heap.Statuses)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestChurnIsMeasured checks that Watch delivers changes, workers wait, and the load alone reads
// nothing. The number of delivered changes depends on the machine: changes gone before a read could
// show them are lost.
func TestChurnIsMeasured(t *testing.T) {
	b := newBench(t)
	if err := b.churnOf(10, 400, 100*time.Millisecond, 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"none", "told", "evented", "generic"} {
		r := b.of("churn", "pods=10/changes/s=400/"+mode, oursName)
		reads := 0.0
		for _, name := range readCalls {
			reads += r.median(unitCalls + " " + name + "/op")
		}
		if r.median(unitMade) <= 0 || (reads > 0) != (mode != "none") {
			t.Errorf("%s: %v", mode, r.Values)
		}
		told, waited := r.median(unitWatch+"-p50-ns"), r.median(unitWait+"-p50-ns")
		if mode != "none" && mode != "generic" {
			if untold := r.median(unitUntold); !(told > 0) || !(waited > 0) || !(untold >= 0 && untold < 100) {
				t.Errorf("%s: %v", mode, r.Values)
			}
		}
	}
}

func TestChangesAreMatchedWithWhatWasTold(t *testing.T) {
	s := span{untold: 7, told: []int64{1}}
	s.match([]server.Change{{ID: "c", Kind: "ContainerStarted", At: 10}, {ID: "c", Kind: "ContainerDied", At: 20}, {ID: "d", Kind: "ContainerDied", At: 30}}, []agent.Told{
		{ID: "c", Kind: "ContainerDied", At: 25}, {ID: "c", Kind: "ContainerDied", At: 90}, {ID: "c", Kind: "ContainerStarted", At: 11}, {ID: "e", Kind: "ContainerDied", At: 31},
	})
	if !slices.Equal(s.told, []int64{1, 5}) || s.untold != 1 {
		t.Errorf("latencies %v, %d not told; want 1 and 5, and 1", s.told, s.untold)
	}
}

func TestWhatTheLoadCostsIsTakenOff(t *testing.T) {
	b := newBench(t)
	load := span{Cost: agent.Cost{CPU: 100, Wall: time.Second}, runtime: 400, changes: 10}
	load.enter(b.of("churn", "x/none", oursName), span{})
	s := span{Cost: agent.Cost{CPU: 600, Wall: time.Second}, runtime: 1000, changes: 20, calls: map[string]uint64{"ListContainers": 10}}
	r := b.of("churn", "x/told", oursName)
	s.enter(r, load)
	if a, rt, n := r.median(unitAgent), r.median(unitRuntime), r.median(unitCalls+" ListContainers/op"); a != 20 || rt != 10 || n != 0.5 {
		t.Errorf("agent %v, runtime %v, lists %v; want 20, 10, 0.5", a, rt, n)
	}
	if a := b.of("churn", "x/none", oursName).median(unitAgent); a != 10 {
		t.Errorf("the load costs %v, want 10", a)
	}
}

func TestEveryOtherRoundGoesTheOtherWay(t *testing.T) {
	all := []string{"a", "b", "c"}
	for round, want := range []string{"a b c", "c b a", "a b c"} {
		if got := strings.Join(turns(all, round), " "); got != want {
			t.Errorf("in round %d the turns are %s, want %s", round, got, want)
		}
	}
}

func TestAnErrorNamesWhoFailed(t *testing.T) {
	b := newBench(t)
	err := b.on(small, "no-such-mode", []string{oursName}, nil)
	if err == nil || !strings.Contains(err.Error(), `ours: start: ours: no such mode: "no-such-mode"`) {
		t.Errorf("the error is %v", err)
	}
}
