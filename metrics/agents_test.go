// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// runAgent calls handle for every change of a pod on the runtime, until ctx ends. The status shows
// the change already, and is never nil: the status of a pod that has gone is empty.
func runAgent(ctx context.Context, endpoint string, registry *prometheus.Registry,
	handle func(pleg.Event, *cri.PodStatus)) error {
	client, err := cri.New(cri.Config{Endpoint: endpoint}) // the runtime need not be up yet
	if err != nil {
		return err
	}
	defer client.Close()
	set, err := metrics.New(metrics.Plain(registry), metrics.Options{})
	if err != nil {
		return err
	}
	statuses := cache.New(cri.EmptyStatus)
	generator, err := pleg.New(pleg.Config[cri.PodStatus]{
		Source: client, Stream: client, Cache: statuses, Merge: cri.KeepIPs, Metrics: set,
	})
	if err != nil {
		return err
	}
	set.SetGauges(generator.Gauges, client.Counts)

	var consumer sync.WaitGroup
	consumer.Go(func() {
		for event := range generator.Watch() { // ends with Run
			status, err := statuses.Get(event.Pod)
			if err != nil {
				fmt.Println("the last good status of", event.Pod, "stands beside an error:", err)
			}
			handle(event, status)
		}
	})
	err = generator.Run(ctx)
	consumer.Wait()
	return err
}

// jobs is a runtime of its own kind: a job is a pod with one container of the same name.
type jobs interface {
	// Running returns the names of all jobs and whether each still runs.
	Running(ctx context.Context) (map[string]bool, error)
}

// jobStatus is what this agent wants to know of a job.
type jobStatus struct{ Running bool }

// jobSource reads jobs for a generator.
type jobSource struct{ jobs jobs }

func (s jobSource) List(ctx context.Context, _ pleg.Revision) (pleg.Listing, error) {
	running, err := s.jobs.Running(ctx)
	listing := pleg.Listing{Total: len(running)}
	for name, runs := range running {
		listing.Pods = append(listing.Pods, jobPod(name, runs))
	}
	return listing, err
}

func (s jobSource) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	running, err := s.jobs.Running(ctx)
	if runs, ok := running[string(uid)]; ok {
		return jobPod(string(uid), runs), err
	}
	return pleg.Pod{UID: uid}, err // no items: it has gone
}

func (s jobSource) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[jobStatus], error) {
	pod, err := s.ListPod(ctx, pod.UID)
	status := &jobStatus{Running: len(pod.Items) > 0 && pod.Items[0].Phase == pleg.PhaseRunning}
	return pleg.Inspection[jobStatus]{Status: status, Pod: pod}, err
}

func jobPod(name string, runs bool) pleg.Pod {
	phase := pleg.PhaseExited
	if runs {
		phase = pleg.PhaseRunning
	}
	items := []pleg.Item{{ID: name, Kind: pleg.Container, Phase: phase}} // an ID must never be used again
	return pleg.Pod{UID: cache.UID(name), Name: name, Items: items}
}

// TestAgentOnCRI runs the first agent of docs/agents.md.
func TestAgentOnCRI(t *testing.T) {
	rt := must(fakeruntime.New(fakeruntime.Config{Seed: 1}))(t)
	defer rt.Close()
	if _, err := rt.Populate(fakeruntime.Population{Pods: 1, Containers: 1}); err != nil {
		t.Fatal(err)
	}
	dir := must(os.MkdirTemp("", "ag"))(t) // t.TempDir is too long for a socket
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	listener := must(net.Listen("unix", socket))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var server sync.WaitGroup
	server.Go(func() { _ = rt.Serve(ctx, listener) })
	registry, started := prometheus.NewRegistry(), 0
	err := runAgent(ctx, "unix://"+socket, registry, func(e pleg.Event, status *cri.PodStatus) {
		if e.Type == pleg.ContainerStarted && status.UID() == e.Pod {
			if started++; started == 2 { // the sandbox and the container
				cancel()
			}
		}
	})
	cancel()
	server.Wait()
	if err != nil || started != 2 {
		t.Errorf("%v, %d started; want the sandbox and the container", err, started)
	}
	families, err := registry.Gather()
	if err != nil || len(families) < 10 {
		t.Errorf("%d families of metrics (%v)", len(families), err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "evented_pleg_client_calls_total" })
	if i < 0 || families[i].GetMetric()[0].GetCounter().GetValue() == 0 {
		t.Error("the client's calls are not served")
	}
}

// someJobs are fixed.
type someJobs map[string]bool

func (j someJobs) Running(context.Context) (map[string]bool, error) { return j, nil }

// TestAgentOnItsOwnSource runs the second agent of docs/agents.md.
func TestAgentOnItsOwnSource(t *testing.T) {
	statuses := cache.New[jobStatus](nil)
	generator := must(pleg.New(pleg.Config[jobStatus]{Source: jobSource{someJobs{"a": true, "b": false}}, Cache: statuses}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = generator.Run(ctx) })
	seen := make(map[cache.UID]pleg.EventType)
	for e := range generator.Watch() {
		seen[e.Pod] = e.Type
		if status, err := statuses.Get(e.Pod); err != nil || status.Running != (e.Pod == "a") {
			t.Errorf("%s: %+v, %v", e.Pod, status, err)
		}
		if len(seen) == 2 {
			break
		}
	}
	cancel()
	group.Wait()
	if seen["a"] != pleg.ContainerStarted || seen["b"] != pleg.ContainerDied {
		t.Errorf("events %v", seen)
	}
}
