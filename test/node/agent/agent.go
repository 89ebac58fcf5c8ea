// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// An Agent is one node agent.
type Agent struct {
	config    Config
	client    *cri.Client
	truth     *crikit.Client // nil: no workers
	cache     *cache.Cache[cri.PodStatus]
	generator *pleg.Generator[cri.PodStatus]
	registry  basemetrics.KubeRegistry
	observer  *observer
	workers   *workers
	step      atomic.Int64 // of the wall clock, in nanoseconds
	consumer  *valve
}

// New puts an agent together. It starts nothing.
func New(c Config) (*Agent, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	a := &Agent{
		config: c, cache: cache.New(cri.EmptyStatus), registry: basemetrics.NewKubeRegistry(),
		observer: newObserver(), consumer: newValve(),
	}
	var err error
	if a.client, err = cri.New(cri.Config{Endpoint: c.Endpoint}); err != nil {
		return nil, err
	}
	if c.Truth != "" {
		if a.truth, err = crikit.Dial(crikit.Options{Endpoint: c.Truth, Namespace: c.Namespace}); err != nil {
			return nil, errors.Join(err, a.client.Close())
		}
	}
	a.workers = newWorkers(a)
	served, err := metrics.New(a.registry, metrics.Options{})
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	config := pleg.Config[cri.PodStatus]{
		Source: a.client, Cache: a.cache, Metrics: served, WallClock: a.now,
		Merge: func(prev, next *cri.PodStatus) *cri.PodStatus {
			a.observer.storing(next)
			return cri.KeepIPs(prev, next)
		},
		RelistBase: c.RelistBase, RelistMax: c.RelistMax, Grace: c.Grace,
		ReconnectBase: c.ReconnectBase, ReconnectMax: c.ReconnectMax, ReconnectSteady: c.ReconnectSteady,
		StableAfter: c.StableAfter, RelistThreshold: c.RelistThreshold, InspectTimeout: c.InspectTimeout,
		RelistTimeout: c.RelistTimeout, Capacity: c.Capacity,
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

// now is the agent's wall clock: the machine's, stepped on request.
func (a *Agent) now() time.Time { return time.Now().Add(time.Duration(a.step.Load())) }

func (a *Agent) close() error {
	err := a.client.Close()
	if a.truth != nil {
		err = errors.Join(err, a.truth.Close())
	}
	return err
}

// Run works until ctx ends, and returns when all that it started has ended. It
// writes one line to out once it serves: the address.
func (a *Agent) Run(ctx context.Context, out io.Writer) error {
	defer a.close()
	listener, err := net.Listen("tcp", a.config.Address)
	if err != nil {
		return fmt.Errorf("agent: listen on %s: %w", a.config.Address, err)
	}
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(listener) })
	all.Go(func() { a.consume(ctx) })
	fmt.Fprintf(out, "serving %s\n", listener.Addr())
	klog.FromContext(ctx).Info("Agent started", "endpoint", a.config.Endpoint, "address", listener.Addr().String(), "generic", a.config.Generic)
	err = a.generator.Run(ctx)
	all.Go(func() {
		// Requests end with ctx, so there is nothing to wait for.
		_ = server.Close()
	})
	all.Wait()
	a.workers.wait()
	return err
}

// consume reads Watch, notes each event, and kicks the pod's worker.
func (a *Agent) consume(ctx context.Context) {
	for a.consumer.wait(ctx) == nil {
		select {
		case e, ok := <-a.generator.Watch():
			if !ok {
				return
			}
			status, _ := a.cache.Get(e.Pod)
			if status == nil {
				a.observer.violate("pod %s: the cache handed out nil", e.Pod)
				continue
			}
			a.observer.delivered(e, status)
			a.workers.kick(ctx, e.Pod)
		case <-a.consumer.turned():
		case <-ctx.Done():
			return
		}
	}
}

// A valve lets a test stop the consumer. mu guards both fields.
type valve struct {
	mu     sync.Mutex
	open   bool
	change chan struct{} // closed and replaced at every turn
}

func newValve() *valve { return &valve{open: true, change: make(chan struct{})} }

func (v *valve) turn(open bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = open
	close(v.change)
	v.change = make(chan struct{})
}

func (v *valve) turned() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.change
}

// wait blocks while the valve is shut.
func (v *valve) wait(ctx context.Context) error {
	for {
		v.mu.Lock()
		open, change := v.open, v.change
		v.mu.Unlock()
		if open {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
