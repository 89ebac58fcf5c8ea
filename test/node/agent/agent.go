// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is a node agent for tests: cache, pleg, cri and metrics as a real agent wires them,
// pod workers that wait on the cache as the kubelet's do, and calls by which a test reads its
// state.
//
// # Model
//
// The agent is a process for tests to kill, stop and restart. [Main] is the process, [Client] the
// test's end of its standard input and output, which carry net/rpc.
//
// The agent checks itself. An observer sees every status before the cache stores it and every event
// at delivery, and records violations: a phase that goes back, an event delivered twice or out of
// order, an event ahead of the cache. Workers compare each answer of GetNewerThan with the
// runtime's own lists from before the call. The agent keeps every event, so it is for tests only.
//
// # Concurrency
//
// Run owns all goroutines. Calls run beside the generator.
//
// # Errors
//
// Main refuses a bad configuration. Later errors of the runtime are the generator's business.
package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// Config configures an agent.
type Config struct {
	// Endpoint is the CRI socket for the PLEG, unix:///path.
	Endpoint string
	// Truth is the CRI socket that pod workers compare with. Empty: no workers.
	Truth string
	// Namespace bounds the cache's view to pods of a namespace. Empty: all.
	Namespace string
	// Generic leaves the event stream out: polling, for comparison.
	Generic bool
	// WorkerPeriod is about how often each pod worker syncs without an event.
	WorkerPeriod time.Duration

	pleg.Config[cri.PodStatus]
}

// flags binds the configuration to flags. Durations of zero are the generator's defaults.
func (c *Config) flags(flags *flag.FlagSet) {
	flags.StringVar(&c.Endpoint, "endpoint", "", "CRI socket of the runtime, unix:///path")
	flags.StringVar(&c.Truth, "truth", "", "CRI socket that pod workers compare with; empty: no workers")
	flags.StringVar(&c.Namespace, "namespace", "", "show only pods of this namespace")
	flags.BoolVar(&c.Generic, "generic", false, "poll, without the event stream")
	flags.DurationVar(&c.WorkerPeriod, "worker-period", time.Second, "how often a pod worker syncs without an event")
	for name, d := range map[string]*time.Duration{
		"relist-max": &c.RelistMax, "reconnect-base": &c.ReconnectBase, "reconnect-max": &c.ReconnectMax,
		"reconnect-steady": &c.ReconnectSteady, "stable-after": &c.StableAfter,
	} {
		flags.DurationVar(d, name, 0, "the generator's setting of that name; 0: its default")
	}
	flags.IntVar(&c.Capacity, "capacity", 0, "size of the Watch channel; 0: the generator's default")
}

// Main runs an agent with command-line arguments until SIGTERM or the end of standard input, and
// returns the exit code.
func Main(args []string) int {
	var config Config
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	config.flags(flags)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	logs := flag.NewFlagSet("logs", flag.ContinueOnError)
	klog.InitFlags(logs)
	err := logs.Set("v", "2")
	a, newErr := New(config)
	if err = errors.Join(err, newErr); err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		err = a.Run(ctx, struct {
			io.Reader
			io.WriteCloser
		}{os.Stdin, os.Stdout})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

// An Agent is a node agent.
type Agent struct {
	config    Config
	client    *cri.Client
	truth     *crikit.Client // nil: no workers
	cache     *cache.Cache[cri.PodStatus]
	generator *pleg.Generator[cri.PodStatus]
	registry  basemetrics.KubeRegistry
	observer  *observer
	workers   *workers
	step      atomic.Int64  // of the wall clock, in nanoseconds
	consumer  chan struct{} // capacity 1: held by the consumer for each event, and by a test to stop it
}

// New wires an agent, and starts nothing.
func New(c Config) (*Agent, error) {
	if c.Endpoint == "" {
		return nil, errors.New("agent: --endpoint is empty: name the runtime's CRI socket, unix:///path")
	}
	if c.Truth != "" && c.WorkerPeriod <= 0 {
		return nil, fmt.Errorf("agent: --worker-period is %v: want more than 0", c.WorkerPeriod)
	}
	a := &Agent{
		config: c, cache: cache.New(cri.EmptyStatus), registry: basemetrics.NewKubeRegistry(),
		observer: newObserver(), consumer: make(chan struct{}, 1),
	}
	a.workers = newWorkers(a)
	var err error
	if a.client, err = cri.New(cri.Config{Endpoint: c.Endpoint}); err != nil {
		return nil, err
	}
	if c.Truth != "" {
		if a.truth, err = crikit.Dial(crikit.Options{Endpoint: c.Truth, Namespace: c.Namespace}); err != nil {
			return nil, errors.Join(err, a.close())
		}
	}
	served, err := metrics.New(a.registry, metrics.Options{})
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	config := c.Config
	config.Source, config.Cache, config.Metrics = a.client, a.cache, served
	config.WallClock = func() time.Time { return time.Now().Add(time.Duration(a.step.Load())) }
	config.Merge = func(prev, next *cri.PodStatus) *cri.PodStatus {
		a.observer.storing(next)
		return cri.KeepIPs(prev, next)
	}
	if !c.Generic {
		config.Stream = a.client
	}
	if a.generator, err = pleg.New(config); err != nil {
		return nil, errors.Join(err, a.close())
	}
	served.SetGauges(a.generator.Gauges)
	return a, nil
}

func (a *Agent) close() error {
	err := a.client.Close()
	if a.truth != nil {
		err = errors.Join(err, a.truth.Close())
	}
	return err
}

// Run works until ctx or the calls on conn end, and returns when everything it started has ended.
func (a *Agent) Run(ctx context.Context, conn io.ReadWriteCloser) error {
	defer a.close()
	server := rpc.NewServer()
	if err := server.RegisterName("Agent", &service{a: a, ctx: ctx}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the parent, which holds the other end
		defer cancel()
		server.ServeConn(conn)
	}()
	var all sync.WaitGroup
	all.Go(func() { a.consume(ctx) })
	klog.FromContext(ctx).Info("Agent started", "endpoint", a.config.Endpoint, "generic", a.config.Generic)
	err := a.generator.Run(ctx)
	all.Wait()
	a.workers.all.Wait()
	return err
}

// consume reads Watch, records each event, and kicks the pod's worker.
func (a *Agent) consume(ctx context.Context) {
	for e := range a.generator.Watch() { // closed when the generator ends
		select {
		case a.consumer <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		status, _ := a.cache.Get(e.Pod)
		a.observer.delivered(e, status)
		a.workers.kick(ctx, e.Pod)
		<-a.consumer
	}
}
