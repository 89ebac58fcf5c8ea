// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/pleg/plegtest"
)

// converse returns the calls of a worker in this process.
func converse(t *testing.T) child.Calls {
	t.Helper()
	in, calls := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(context.Background(), in, out)
		out.Close()
	}()
	c := child.NewCalls(answers, calls)
	t.Cleanup(func() {
		_ = c.Close() // ends Serve
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// ask makes a call that must succeed.
func ask[A any](t *testing.T, c child.Calls, method string, argument any) A {
	t.Helper()
	answer := testkit.Must(child.Ask[A](t.Context(), c, method, argument))(t)
	return answer
}

// TestServeLooksItself is a worker without a load of its parent's: it compares with the runtime.
func TestServeLooksItself(t *testing.T) {
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{}))(t)
	path := onfake.Socket(t, rt)
	testkit.Must(rt.Populate(fakeruntime.Population{Pods: 1, Containers: 1}))(t)
	pod := rt.Truth().Pods[0]
	id := pod.Sandboxes[0].Containers[0].ID
	c := converse(t)
	hello := ask[Hello](
		t,
		c,
		"Start",
		Config{Endpoint: path, Truth: path, Mode: Evented, Check: true, MetricsAddr: "127.0.0.1:0"},
	)
	if hello.RuntimeName != "containerd" {
		t.Errorf("hello from %q", hello.RuntimeName)
	}
	ask[bool](t, c, "Probe", 200.0)
	ask[bool](t, c, "Consume", false)
	if newer := ask[Newer](t, c, "Newer", pod.UID); bench.Find([]bench.Pod{newer.Pod}, pod.UID, id).State != pleg.PhaseRunning || newer.Took <= 0 {
		t.Errorf("newer %+v, want a running container", newer)
	}
	for len(ask[Report](t, c, "Report", true).Waits) == 0 {
		time.Sleep(time.Millisecond)
	}
	if snapshot := ask[Snapshot](t, c, "Snapshot", true); len(snapshot.Pods) != 1 || len(snapshot.Pods[0].Items) != 2 {
		t.Errorf("snapshot %+v, want one pod with a sandbox and a container", snapshot.Pods)
	}
	resp := testkit.Must(http.Get("http://" + hello.MetricsAddr + "/metrics"))(t)
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if err != nil || !strings.Contains(string(body), MetricMissed) ||
		!strings.Contains(string(body), `kubelet_running_containers{container_state="running"} 1`) {
		t.Errorf("metrics (%v):\n%s", err, body)
	}
	testkit.Check(t, rt.Exit(id, 0))
	for bench.Find(ask[[]bench.Pod](t, c, "Cache", true), pod.UID, id).State != pleg.PhaseExited {
		time.Sleep(time.Millisecond)
	}
	ended := func(e bench.Delivery) bool {
		return e.ID == id && e.State() == pleg.PhaseExited && e.Seen <= e.At && e.FinishedAt > 0
	}
	if news := ask[News](t, c, "News", true); slices.ContainsFunc(news.Deliveries, ended) {
		t.Error("a consumer that does not read has delivered an end")
	}
	ask[bool](t, c, "Consume", true)
	for !slices.ContainsFunc(ask[News](t, c, "News", true).Deliveries, ended) {
		time.Sleep(time.Millisecond)
	}

	// A claim stamped by the runtime has taken an hour, by a clock that is an hour ahead.
	ask[bool](t, c, "StepClock", time.Hour)
	testkit.Must(rt.AddPod(fakeruntime.PodSpec{UID: "late"}))(t)
	var m map[string]float64
	for m[MetricLatency+"_sum"] < 3000 {
		var err error
		if m, err = Metrics(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if m[MetricLatency+"_count"] <= m[MetricLatency+`_bucket{le="1"}`] || m[MetricMissed] != 0 {
		t.Errorf("metrics %v", m)
	}
	report := ask[Report](t, c, "Report", true)
	if report.StaleReads != 0 || report.ReadErrors != 0 {
		t.Errorf("violations %q, %d errors of a right generator", report.Complaints, report.ReadErrors)
	}
	if report.Calls["ListContainers"]+report.Calls["StreamContainers"] == 0 ||
		report.Progress.Usage.MaxRSS == 0 {
		t.Errorf("calls %v, usage %+v", report.Calls, report.Progress.Usage)
	}
}

// TestChecksAreWired has the checker believe that a container is gone: the statuses and events of
// the container must then be violations. A blind worker would pass every scenario.
func TestChecksAreWired(t *testing.T) {
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{}))(t)
	path := onfake.Socket(t, rt)
	testkit.Must(rt.Populate(fakeruntime.Population{Pods: 1, Containers: 1}))(t)
	pod := rt.Truth().Pods[0]
	id := pod.Sandboxes[0].Containers[0].ID
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Server{ctx: ctx, cancel: cancel, reading: make(chan struct{}, 1)}
	testkit.Check(t, s.Start(Config{Endpoint: path, Mode: Evented, Check: true}, new(Hello)))
	defer func() {
		cancel(nil)
		s.group.Wait()
		s.subject.close()
	}()
	var newer Newer
	testkit.Check(t, s.Newer(pod.UID, &newer))

	checker := &s.subject.checker
	checker.Event(pleg.Event{Pod: cache.UID(pod.UID), ID: id, Type: pleg.ContainerRemoved}, plegtest.Pod{})
	testkit.Check(t, rt.Exit(id, 0))
	for checker.Count(plegtest.WentBack) == 0 || checker.Count(plegtest.Disordered) == 0 {
		time.Sleep(time.Millisecond)
	}
	var report Report
	testkit.Check(t, s.Report(true, &report))
	if report.StaleReads < 2 || len(report.Complaints) < 2 {
		t.Errorf("%d violations, %q; want two and more", report.StaleReads, report.Complaints)
	}
}

// TestMemoryReadsWhatIsLate has a container's status come too late for the client, which gives such
// a read up: the worker reads the pod again, and measures.
func TestMemoryReadsWhatIsLate(t *testing.T) {
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{}))(t)
	path := onfake.Socket(t, rt)
	testkit.Must(rt.Populate(fakeruntime.Population{Pods: 1, Containers: 1}))(t)
	c := converse(t)
	ask[Hello](t, c, "Start", Config{Endpoint: path, Mode: Generic, RelistBase: time.Hour})
	ask[bool](t, c, "Relists", 1)
	testkit.Check(t, rt.SetFaults(fakeruntime.Faults{HangItem: 1}))
	before := rt.Stats().RPCs["PodSandboxStatus"]
	measured := make(chan error, 1)
	go func() {
		_, err := child.Ask[Memory](t.Context(), c, "Memory", true)
		measured <- err
	}()
	for rt.Stats().RPCs["PodSandboxStatus"] < before+2 { // it reads again
		select {
		case err := <-measured:
			t.Fatalf("measured without the status: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	testkit.Check(t, rt.SetFaults(fakeruntime.Faults{}))
	rt.Restart(0, 0) // the call that hangs has an answer
	testkit.Check(t, <-measured)
}
