// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	rtmetrics "runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	kubemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/pleg/plegtest"
)

// dialTimeout is how long the runtime may take to answer the first call.
const dialTimeout = 10 * time.Second

// subject is the generator under test with its parts.
type subject struct {
	config    Config
	client    *cri.Client
	cache     *cache.Cache[cri.PodStatus]
	generator *pleg.Generator[cri.PodStatus]
	registry  kubemetrics.KubeRegistry
	prober    *prober
	checker   plegtest.Checker // of each status before its storage, and each event, with Config.Check
	truth     *grpc.ClientConn // nil for none
	step      atomic.Int64     // of the wall clock, in nanoseconds
	listed    chan struct{}    // capacity 1: a list of everything was applied
	listener  net.Listener     // of the metrics; nil for none
	hello     Hello
}

func newSubject(ctx context.Context, config Config, meter *standstill.Meter) (_ *subject, err error) {
	s := &subject{
		config:   config,
		cache:    cache.New(cri.EmptyStatus),
		registry: kubemetrics.NewKubeRegistry(),
		listed:   make(chan struct{}, 1),
	}
	s.prober = &prober{
		cache: s.cache,
		facts: newFacts(config.Seed),
		wake:  make(chan struct{}, 1),
		meter: meter,
	}
	set, err := metrics.New(s.registry, metrics.Options{})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	ctx, cancel := meter.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if s.client, err = cri.Dial(ctx, cri.Config{Endpoint: config.Endpoint}); err != nil {
		if standstill.Expired(ctx) {
			err = fmt.Errorf("worker: the runtime on %s has not answered within %v", config.Endpoint, dialTimeout)
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	version, err := s.client.Version(ctx)
	if err != nil {
		return nil, err
	}
	s.hello = Hello{RuntimeName: version.RuntimeName, RuntimeVersion: version.RuntimeVersion}
	plegConfig := pleg.Config[cri.PodStatus]{
		Source:          s.client,
		Cache:           s.cache,
		Merge:           cri.KeepIPs,
		Metrics:         watched{set, s.listed},
		RelistBase:      config.RelistBase,
		RelistMax:       config.RelistMax,
		RelistTimeout:   config.ReadTimeout,
		InspectTimeout:  config.ReadTimeout,
		ReconnectBase:   config.ReconnectBase,
		ReconnectMax:    config.ReconnectMax,
		ReconnectSteady: config.ReconnectSteady,
		StableAfter:     config.StableAfter,
		Capacity:        config.Capacity,
		WallClock:       func() time.Time { return time.Now().Add(time.Duration(s.step.Load())) },
	}
	switch config.Mode {
	case Evented:
		plegConfig.Stream = s.client
	case Generic:
	default:
		return nil, fmt.Errorf("worker: mode %q: it must be %s or %s", config.Mode, Evented, Generic)
	}
	if config.Check {
		plegConfig.Merge = func(prev, next *cri.PodStatus) *cri.PodStatus {
			s.checker.Shows(Show(next.UID(), next, nil).Judged())
			return cri.KeepIPs(prev, next)
		}
	}
	if config.Truth != "" {
		if s.truth, err = load.Connect(strings.TrimPrefix(config.Truth, "unix://")); err != nil {
			return nil, err
		}
		s.prober.truth = s.truth
	}
	if s.generator, err = pleg.New(plegConfig); err != nil {
		return nil, err
	}
	set.SetGauges(s.generator.Gauges, s.client.Counts)
	if config.MetricsAddr != "" {
		if s.listener, err = ListenForMetrics(config.MetricsAddr); err != nil {
			return nil, err
		}
		s.hello.MetricsAddr = s.listener.Addr().String()
	}
	return s, nil
}

// run runs the generator, and serves its metrics, until ctx ends.
func (s *subject) run(ctx context.Context) error {
	if s.listener != nil {
		var group sync.WaitGroup
		defer group.Wait()
		serveCtx, stop := context.WithCancel(ctx)
		defer stop()
		group.Go(func() { ServeMetrics(serveCtx, s.listener, s.registry, s.generator.Health) })
	}
	return s.generator.Run(ctx)
}

// CheckMetricsAddr returns an error for a value of --metrics-addr that is no address, nor empty.
func CheckMetricsAddr(addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("--metrics-addr %s: use HOST:PORT, such as 127.0.0.1:9464", addr)
	}
	return nil
}

// ListenForMetrics listens on the address of --metrics-addr. The caller closes the listener.
func ListenForMetrics(addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: cannot serve metrics on %s: name a free port that this user may take: %w", addr, err)
	}
	return listener, nil
}

// ServeMetrics serves metrics on /metrics and, on /healthz, whether health is nil, until ctx ends.
// It closes the listener.
func ServeMetrics(
	ctx context.Context,
	listener net.Listener,
	metrics prometheus.Gatherer,
	health func() error,
) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := health(); err != nil {
			http.Error(w, printable.Text(err.Error()), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	_ = server.Serve(listener) // ends with Close
}

func (s *subject) close() {
	_ = s.client.Close()
	if s.truth != nil {
		_ = s.truth.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
}

func (s *subject) progress() Progress {
	p := Progress{
		At:    bench.Now(),
		Stats: s.generator.Stats(),
		Usage: bench.OwnUsage(),
		Heap:  heap(),
	}
	if !p.GlobalTime.IsZero() {
		p.Covered = bench.Stamp(p.GlobalTime)
	}
	if err := s.generator.Health(); err != nil {
		p.Health = err.Error()
	}
	return p
}

func (s *subject) snapshot() (pods []bench.Pod) {
	for _, uid := range s.cache.UIDs() {
		status, err := s.cache.Get(uid)
		pods = append(pods, Show(uid, status, err))
	}
	return pods
}

// heap returns the live heap after the last collection plus later allocations.
func heap() uint64 {
	sample := []rtmetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	rtmetrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Show turns a status of the cache into its compared form.
func Show(uid cache.UID, status *cri.PodStatus, err error) bench.Pod {
	p := bench.Pod{UID: string(uid), IPs: status.IPs()}
	if err != nil {
		p.Err = err.Error()
	}
	for _, s := range status.Sandboxes() {
		p.Items = append(p.Items, bench.Item{ID: s.ID, Sandbox: true, State: s.Phase})
	}
	for _, c := range status.Containers() {
		p.Items = append(p.Items, bench.Item{
			ID:         c.ID,
			State:      c.Phase,
			Name:       c.Name,
			ExitCode:   c.ExitCode,
			Reason:     c.Reason,
			StartedAt:  nanoseconds(c.StartedAt),
			FinishedAt: nanoseconds(c.FinishedAt),
		})
	}
	return p
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
