// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestMain(m *testing.M) {
	testkit.Waiting(4) // loads of a given rate
	goleak.VerifyTestMain(m)
}

const image = fakeruntime.WorkloadImage

// serve serves a fake runtime and returns the runtime with a connection.
func serve(t *testing.T, config fakeruntime.Config) (*fakeruntime.Runtime, *grpc.ClientConn) {
	t.Helper()
	rt := testkit.Must(fakeruntime.New(config))(t)
	return rt, onfake.Connect(t, onfake.Memory(t, rt))
}

// factBook collects facts.
type factBook struct {
	mu    sync.Mutex
	facts []load.Fact
}

func (b *factBook) add(f load.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.facts = append(b.facts, f)
}

func newDriver(t *testing.T, conn *grpc.ClientConn, change func(*load.Config)) (*load.Driver, *factBook) {
	t.Helper()
	book := new(factBook)
	config := load.Config{
		Conn:         conn,
		RunID:        "t",
		Pods:         5,
		Containers:   2,
		Rate:         400,
		Seed:         1,
		Image:        image,
		JobLife:      5 * time.Millisecond,
		CallTimeout:  5 * time.Second,
		OnFact:       book.add,
		Logger:       testr.New(t),
		LogDirectory: "/logs",
		UnderWay:     20, // a machine slower than the rate completes what it has begun
	}
	if change != nil {
		change(&config)
	}
	return load.New(config), book
}

// run drives a load until it has ended a hundred actions: how many there are in a time depends on
// what else the machine does.
func run(t *testing.T, d *load.Driver) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(t.Context(), time.Hour)
	}()
	for stats := d.Stats(); stats.Actions+stats.Broken < 100; stats = d.Stats() {
		time.Sleep(time.Millisecond)
	}
	d.Finish()
	<-done
}

// states is the last state of each ID in the runtime's truth; absent IDs are gone.
func states(pods []bench.Pod) map[string]pleg.Phase {
	m := make(map[string]pleg.Phase)
	for _, p := range pods {
		for _, i := range p.Items {
			m[i.ID] = i.State
		}
	}
	return m
}

func TestFactsAreWhatTheRuntimeShows(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, fakeruntime.Config{})
	d, book := newDriver(t, conn, nil)
	testkit.Check(t, d.Setup(t.Context()))
	run(t, d)
	stats := d.Stats()
	if stats.Broken != 0 || len(stats.Errors) != 0 {
		t.Errorf("%d actions, %d broken, errors %v; want no trouble", stats.Actions, stats.Broken, stats.Errors)
	}
	pods := testkit.Must(load.Read(t.Context(), conn, load.RunLabel, "t"))(t)
	if len(pods) != 5 {
		t.Errorf("%d pods in the end, want 5", len(pods))
	}
	shown := states(pods)
	last := make(map[string]load.Fact)
	for _, f := range book.facts {
		last[f.ID] = f
	}
	for id, f := range last {
		state, ok := shown[id]
		if f.State == pleg.PhaseRemoved && ok || f.State != pleg.PhaseRemoved && state != f.State {
			t.Errorf("%s: the last fact is %s, the runtime shows %q", id, f.State, state)
		}
		delete(shown, id)
	}
	for id, state := range shown {
		t.Errorf("%s is %s in the runtime, and no fact was told of it", id, state)
	}
}

// TestSurvivesFaults drives a runtime with failing calls, and expects a whole load in the end.
func TestSurvivesFaults(t *testing.T) {
	t.Parallel()
	rt, conn := serve(
		t,
		fakeruntime.Config{
			Seed:   3,
			Faults: fakeruntime.Faults{FailWrite: 0.1, StartError: 0.1, SandboxError: 0.1},
		},
	)
	d, _ := newDriver(t, conn, nil)
	testkit.Check(t, d.Setup(t.Context()))
	run(t, d)
	if stats := d.Stats(); stats.Broken == 0 || len(stats.Errors) == 0 {
		t.Errorf("no action failed although calls do: %+v", stats.Errors)
	}
	testkit.Check(t, rt.SetFaults(fakeruntime.Faults{}))
	testkit.Check(t, d.Cleanup(t.Context()))
	left, err := load.Read(t.Context(), conn, "", "")
	if err != nil || len(left) != 0 {
		t.Errorf("%d pods left (%v), want none", len(left), err)
	}
}

func TestChangesCarryTheRuntimesStamps(t *testing.T) {
	rt, conn := serve(t, fakeruntime.Config{})
	var mu sync.Mutex
	var changes []bench.Change
	d, _ := newDriver(t, conn, func(c *load.Config) {
		c.Rate = 0
		c.OnChange = func(ch bench.Change) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, ch)
		}
	})
	testkit.Check(t, d.Setup(t.Context()))
	started := make(map[string]int64)
	for _, p := range rt.Truth().Pods {
		for _, s := range p.Sandboxes {
			for _, c := range s.Containers {
				started[c.ID] = c.StartedAt
			}
		}
	}
	exact := 0
	for _, c := range changes {
		if c.Inexact {
			continue
		}
		exact++
		if c.At != started[c.ID] {
			t.Errorf("%s started at %d, told as %d", c.ID, started[c.ID], c.At)
		}
	}
	if exact != 10 {
		t.Errorf("%d exact changes, want the start of each of 10 containers", exact)
	}
}

// TestUnderWayIsBounded checks that a hanging runtime gets no more actions than allowed, and that
// Finish ends the wait.
func TestUnderWayIsBounded(t *testing.T) {
	t.Parallel()
	rt, conn := serve(t, fakeruntime.Config{})
	d, _ := newDriver(
		t,
		conn,
		func(c *load.Config) { c.UnderWay, c.JobsOnly, c.CallTimeout, c.Rate = 3, true, 2*time.Second, 1000 },
	)
	testkit.Check(t, d.Setup(t.Context()))
	faults := testkit.Must(fakeruntime.ParseFaults("hang-write=1"))(t)
	testkit.Check(t, rt.SetFaults(faults))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(t.Context(), time.Hour)
	}()
	for most := 0; most < 3; most = max(most, d.Stats().UnderWay) {
		time.Sleep(time.Millisecond)
	}
	for range 50 {
		if n := d.Stats().UnderWay; n > 3 {
			t.Fatalf("%d actions are under way, want at most 3", n)
		}
		time.Sleep(time.Millisecond)
	}
	d.Finish()
	<-done
	if n := d.Stats().UnderWay; n != 0 {
		t.Errorf("%d actions are under way after Run", n)
	}
}

// TestEveryContainerHasALogPath holds for sandboxes and containers of every kind of action.
func TestEveryContainerHasALogPath(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, fakeruntime.Config{})
	d, _ := newDriver(t, conn, func(c *load.Config) { c.LogDirectory = "/some/where" })
	testkit.Check(t, d.Setup(t.Context()))
	run(t, d)
	client := runtimeapi.NewRuntimeServiceClient(conn)
	list := testkit.Must(client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t)
	paths := make(map[string]bool)
	for _, c := range list.GetContainers() {
		answer := testkit.Must(client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()}))(t)
		path := answer.GetStatus().GetLogPath()
		if filepath.Dir(path) != "/some/where" || filepath.Ext(path) != ".log" || paths[path] {
			t.Errorf("log path %q: want a file of its own in the load's folder", path)
		}
		paths[path] = true
	}
	if len(paths) < 10 {
		t.Errorf("%d containers, want those of 5 pods at least", len(paths))
	}
}
