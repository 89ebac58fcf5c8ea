// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"flag"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// mostAgents is small by default: the race detector takes some 8,000 goroutines.
var mostAgents = flag.Int("agents", 40, "largest number of agents of TestAgents, such as 1000")

// mostSeries is the largest number of series that a node may cost a Prometheus.
const mostSeries = 150

// fleetCost is the cost of agents with as many fake runtimes in this process.
type fleetCost struct {
	goroutines, calls, series int
	bytes                     uint64
	cpu                       time.Duration
}

// memory returns the bytes in use.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// measureAgents runs n agents on nodes of 30 pods for a minute, in which a container lives
// and dies on each every ten seconds.
func measureAgents(t *testing.T, n int) (cost fleetCost) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		var group sync.WaitGroup
		defer group.Wait()
		defer stop()
		profile, err := fakeruntime.ProfileByName("containerd-2")
		if err != nil {
			t.Fatal(err)
		}
		runtimes, sandboxes, listeners := make([]*fakeruntime.Runtime, n), make([]string, n), make([]*bufconn.Listener, n)
		for i := range n {
			rt, err := fakeruntime.New(fakeruntime.Config{Profile: profile, Seed: uint64(i), HistoryLimit: 10})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close()
			ids, err := rt.Populate(fakeruntime.Population{Pods: 30, Containers: 2})
			if err != nil {
				t.Fatal(err)
			}
			runtimes[i], sandboxes[i], listeners[i] = rt, ids[0], bufconn.Listen(1<<15)
			group.Go(func() { _ = rt.Serve(ctx, listeners[i]) })
		}
		live := func() {
			for i, rt := range runtimes {
				id, err := rt.AddContainer(sandboxes[i], fakeruntime.ContainerSpec{})
				if err == nil {
					err = rt.Start(id)
				}
				time.AfterFunc(time.Second, func() { _ = rt.Exit(id, 0) })
				time.AfterFunc(2*time.Second, func() { _ = rt.Remove(id) })
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		goroutines, bytes := runtime.NumGoroutine(), memory()
		begin := bench.OwnUsage().CPUSeconds
		agents := make([]watched, n)
		for i := range agents {
			o := Options{Endpoint: "fake", Mode: worker.Evented, Dialer: func(ctx context.Context) (net.Conn, error) { return listeners[i].DialContext(ctx) }}
			w, err := attach(ctx, o)
			if err == nil {
				err = w.generate(o)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer w.client.Close()
			agents[i] = w
			group.Go(func() { _ = w.generator.Run(ctx) })
			group.Go(func() {
				for range w.generator.Watch() {
				}
			})
		}
		for range 6 {
			time.Sleep(10 * time.Second)
			live()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		cost.cpu = time.Duration((bench.OwnUsage().CPUSeconds - begin) * float64(time.Second))
		cost.goroutines, cost.bytes = runtime.NumGoroutine()-goroutines, memory()-bytes
		for i := range agents {
			for _, calls := range agents[i].client.Stats().Calls {
				cost.calls += int(calls)
			}
			cost.series = max(cost.series, seriesOf(t, agents[i].registry))
		}
		stop()
		group.Wait() // before the clients are closed
	})
	return cost
}

// seriesOf counts the series of a scrape as Prometheus does, its own few about the scrape included.
func seriesOf(t *testing.T, registry prometheus.Gatherer) int {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	const ofScrapes = 5 // up, scrape_duration_seconds and so on
	n := ofScrapes
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n++; f.GetType() == dto.MetricType_HISTOGRAM {
				n += len(m.GetHistogram().GetBucket()) + 2 // +Inf, and sum beside count
			}
		}
	}
	return n
}

// TestAgents shows that the cost of an agent does not depend on the number of agents: goroutines
// and calls exactly, memory nearly. CPU is only shown. The documented figures are from
//
//	go test -run TestAgents -v -args -agents=1000
func TestAgents(t *testing.T) {
	var table strings.Builder
	var first fleetCost
	for _, n := range []int{10, 40, 100, 1000} {
		if n > *mostAgents {
			break
		}
		c := measureAgents(t, n)
		fmt.Fprintf(&table, "%5d agents: of each %d goroutines, %d KiB with its fake's connection, %d calls in a minute, %.1f ms CPU with its fake, %d series\n",
			n, c.goroutines/n, c.bytes>>10/uint64(n), c.calls/n, float64(c.cpu/time.Duration(n))/1e6, c.series)
		if n == 10 {
			first = c
			continue
		}
		if scale := n / 10; c.goroutines > first.goroutines*scale || c.calls/n > first.calls/10+2 || c.bytes > 2*first.bytes*uint64(scale) {
			t.Errorf("%d agents: %+v, and 10: %+v", n, c, first)
		}
	}
	if first.series > mostSeries || first.series < 50 {
		t.Errorf("%d series for each node, want at most %d", first.series, mostSeries)
	}
	t.Log("\n" + table.String())
}
