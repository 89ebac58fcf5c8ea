// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Virtual times of a scene.
const (
	// healthyFor is how long the runtime is healthy before the fault, to distinguish the fault from
	// a bad start. A fault present from the start is marked.
	healthyFor = 2 * time.Minute
	// judged is how long the agent runs for its reports and metrics, and alerting for its alerts,
	// some of which wait for half an hour.
	judged   = 12 * time.Minute
	alerting = 40 * time.Minute
	// busyRate is the changes a second until judged, calmRate those after: alerts wait for half an
	// hour, which would be most of the cost of a scene.
	busyRate = 1
	calmRate = 0.2
	// watched is how long pleg-bench watch runs, from the moment at which the fault begins.
	watched = 3 * time.Minute
	// scrapeEvery is how often the agent's metrics are looked at.
	scrapeEvery = 15 * time.Second
	pods        = 14
	// collectsAfter is how long an ended container stays, as it does until a kubelet collects it.
	collectsAfter = 20 * time.Second
	// takesTime gives calls the duration of a quiet runtime's: in virtual time they would take none,
	// and a read would begin in the very instant of a change.
	takesTime = "slow-list=3ms slow-status=2ms slow-write=5ms"
)

// busyThroughout are the sections about streams that break with the events that they carry: their
// alerts need the busy rate.
var busyThroughout = []string{streamLost, crioSilent}

// seen is the signs of a fault.
type seen struct {
	mu sync.Mutex // owns the reports' results
	// reports are the agent's until judged, by reason.
	reports map[pleg.Reason]int
	over    bool
	// samples are the agent's metrics, by series; NaN while a series is not served.
	samples map[string][]float64
	notes   string
	summary watch.Summary
	err     error

	began    chan struct{} // closed when the fault begins
	statuses *cache.Cache[cri.PodStatus]
	differs  []string // differences of the agent's cache from the runtime
}

// Record implements [pleg.Recorder].
func (s *seen) Record(r pleg.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.reports[r.Reason] += 1 + r.Held
	}
}

// tellEnds has the runtime tell of the end of one of some pods that live, in turn, again and again.
func tellEnds(ctx context.Context, t *testing.T, rt *fakeruntime.Runtime, every time.Duration, pods int) {
	var ids []string
	for n := range pods {
		ids = append(ids, testkit.Must(rt.AddPod(fakeruntime.PodSpec{UID: fmt.Sprintf("alive-%d", n)}))(t))
	}
	for n := 0; bench.Sleep(ctx, every) == nil; n++ {
		id := ids[n%pods]
		if err := errors.Join(rt.StopSandbox(id), rt.RecoverSandbox(id)); err != nil {
			t.Error(err)
		}
	}
}

// play runs a scene in virtual time until judged. Then alerted reports whether the scene goes on
// until alerting: most of a scene's time is needed by its alerts alone.
func play(t *testing.T, set setting, alerted func(*seen) bool) {
	t.Helper()
	s := &seen{reports: make(map[pleg.Reason]int), samples: make(map[string][]float64)}
	synctest.Test(t, func(t *testing.T) { s.play(t, set, alerted) })
}

func (s *seen) play(t *testing.T, set setting, alerted func(*seen) bool) {
	profile := testkit.Must(fakeruntime.ProfileByName(cmp.Or(set.profile, "containerd-2")))(t)
	faults := testkit.Must(fakeruntime.ParseFaults(append(strings.Fields(takesTime), strings.Fields(set.set)...)...))(t)
	well := testkit.Must(fakeruntime.ParseFaults(strings.Fields(takesTime)...))(t)
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{Profile: profile, Faults: well, Seed: 1, HistoryLimit: -1}))(t)
	dial := onfake.Memory(t, rt)
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()

	driver := newDriver(t, dial)
	testkit.Check(t, driver.Setup(ctx))
	loaded, rest := context.WithCancel(ctx)
	group.Go(func() { driver.Run(loaded, time.Hour) })
	if set.fromStart {
		testkit.Check(t, rt.SetFaults(faults))
	}
	registry := prometheus.NewRegistry()
	s.statuses, s.began = cache.New(cri.EmptyStatus), make(chan struct{})
	group.Go(func() { s.agent(t, ctx, set, dial, registry) })
	begun := time.Now()
	next := begun.Add(healthyFor + time.Minute)
	for i := 0; time.Since(begun) < alerting; i++ {
		if time.Since(begun) == alerting-scrapeEvery {
			rest()
		}
		time.Sleep(scrapeEvery)
		synctest.Wait()
		s.scrape(t, registry, i)
		if time.Since(begun) == judged {
			s.mu.Lock()
			s.over = true
			s.mu.Unlock()
			if !alerted(s) {
				break
			}
			if !slices.Contains(busyThroughout, set.section) {
				driver.SetRate(calmRate)
			}
		}
		if at := time.Since(begun); at == healthyFor {
			testkit.Check(t, rt.SetFaults(faults))
			if set.falseEnds > 0 {
				group.Go(func() { tellEnds(ctx, t, rt, set.falseEnds, max(1, set.falsePods)) })
			}
			close(s.began)
			if set.deafPeer {
				subscribe(t, ctx, dial)
			}
			group.Go(func() { s.watch(ctx, dial) })
		}
		if set.restartEvery > 0 && !time.Now().Before(next) {
			next = next.Add(set.restartEvery)
			rt.Restart(2*time.Second, time.Second)
		}
	}
	rest()
	if set.harmless != "" {
		testkit.Check(t, rt.SetFaults(well))
		s.compare(t, ctx, dial)
	}
}

// newDriver returns a driver that makes, changes and removes pods through the CRI, as a kubelet
// does.
func newDriver(t *testing.T, dial onfake.Dialer) *load.Driver {
	conn := onfake.Connect(t, dial, grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if strings.HasSuffix(method, "/RemoveContainer") {
			time.Sleep(collectsAfter)
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return call(ctx, method, request, answer, conn, opts...)
	}))
	return load.New(load.Config{
		Conn:        conn,
		RunID:       "w",
		Pods:        pods,
		Containers:  2,
		Rate:        busyRate,
		Seed:        1,
		Image:       fakeruntime.WorkloadImage,
		JobLife:     20 * time.Millisecond,
		CallTimeout: time.Minute,
	})
}

// watch runs pleg-bench watch.
func (s *seen) watch(ctx context.Context, dial onfake.Dialer) {
	var out bytes.Buffer
	summary, err := watch.Run(
		ctx,
		watch.Options{
			Endpoint: "fake",
			Dialer:   dial,
			Mode:     worker.Evented,
			Duration: watched,
			Output:   "json",
			Out:      &out,
			Err:      &out,
		},
	)
	if s.err = err; summary != nil {
		s.summary = *summary
	}
	for line := range strings.Lines(out.String()) {
		var l struct{ Type, Reason, Note string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.notes += line
			continue
		}
		if l.Type == "Report" {
			s.notes += l.Reason + ": " + l.Note + "\n"
		}
	}
}

// agent is the agent of docs/agents.md, with a worker for each pod that waits for a fresh status
// after each event, as a kubelet's pod workers do.
func (s *seen) agent(
	t *testing.T,
	ctx context.Context,
	agent setting,
	dial onfake.Dialer,
	registry *prometheus.Registry,
) {
	client, err := cri.New(cri.Config{Endpoint: "fake", Dialer: dial})
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	set, err := metrics.New(metrics.Plain(registry), metrics.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	statuses := s.statuses
	generator, err := pleg.New(pleg.Config[cri.PodStatus]{
		Source:   client,
		Stream:   client,
		Cache:    statuses,
		Merge:    cri.KeepIPs,
		Metrics:  set,
		Recorder: s,
		Capacity: agent.capacity,
	})
	if err != nil {
		t.Error(err)
		return
	}
	set.SetGauges(generator.Gauges, client.Counts)
	var workers sync.WaitGroup
	workers.Go(func() {
		busy := make(map[cache.UID]chan struct{}) // has a value while the pod's worker works
		for event := range generator.Watch() {
			if agent.unread {
				select {
				case <-s.began:
					return // the sync loop is stuck
				default:
				}
			}
			worker := busy[event.Pod]
			if worker == nil {
				worker = make(chan struct{}, 1)
				busy[event.Pod] = worker
			}
			select {
			case worker <- struct{}{}:
				workers.Go(func() {
					_, _ = statuses.GetNewerThan(ctx, event.Pod, time.Now())
					<-worker
				})
			default: // works
			}
		}
	})
	_ = generator.Run(ctx)
	workers.Wait()
}

// subscribe opens a stream of events and ignores it, like a stopped process.
func subscribe(t *testing.T, ctx context.Context, dial onfake.Dialer) {
	_, err := runtimeapi.NewRuntimeServiceClient(onfake.Connect(t, dial)).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Error(err)
	}
}

// compare holds the agent's cache against the runtime, as pleg-bench run does.
func (s *seen) compare(t *testing.T, ctx context.Context, dial onfake.Dialer) {
	truth, err := load.Read(ctx, onfake.Connect(t, dial), "", "")
	if err != nil {
		t.Error(err)
		return
	}
	var shown []bench.Pod
	for _, uid := range s.statuses.UIDs() {
		status, err := s.statuses.Get(uid)
		shown = append(shown, worker.Show(uid, status, err))
	}
	_, s.differs = bench.Compare(shown, truth, 100)
}

// scrape adds the i-th sample of each series.
func (s *seen) scrape(t *testing.T, registry *prometheus.Registry, i int) {
	families := testkit.Must(registry.Gather())(t)
	var text bytes.Buffer
	for _, f := range families {
		testkit.Must(expfmt.MetricFamilyToText(&text, f))(t)
	}
	for metric, v := range bench.Scrape(text.Bytes()) {
		name, labels, _ := strings.Cut(metric, "{")
		series := name + `{job="n"}`
		if labels != "" {
			series = name + `{job="n",` + labels
		}
		for len(s.samples[series]) < i {
			s.samples[series] = append(s.samples[series], math.NaN())
		}
		s.samples[series] = append(s.samples[series], v)
	}
}
