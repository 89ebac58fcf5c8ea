// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package watch attaches a generator to a runtime, read-only, and prints its events and reports,
// and in the end the worth of the runtime's event stream.
//
// # Model
//
// A tap stands between the generator and its client, and sees the work of both. A loop prints
// lifecycle events as they come and, several times a second, the tap's findings and changes of the
// stream's state, the relist period and the number of missed events. A pod's name comes from the
// cache; names of removed pods are remembered for a while.
//
// # Concurrency
//
// [Run] returns when its context ends and everything it started has ended.
//
// # Errors
//
// Run fails without a summary if the runtime cannot be reached at first, and with one if no list of
// the runtime has succeeded until the end. Run waits for a runtime that goes away later.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Options are those of a watch.
type Options struct {
	Endpoint string
	// Dialer, when set, connects to the runtime; Endpoint is then only its name.
	Dialer func(context.Context) (net.Conn, error)
	// Mode is worker.Evented or worker.Generic.
	Mode string
	// Namespace, unless empty, restricts the printed pods.
	Namespace string
	// Duration ends the watch; 0 leaves the end to the context.
	Duration time.Duration
	// StatusEvery is how often the state is printed while nothing happens; 0 is never.
	StatusEvery time.Duration
	// TakeEvents subscribes to the events of a runtime that gives each event to a single client, and
	// so takes events away from an agent beside the watch. Without TakeEvents such a runtime is
	// polled.
	TakeEvents bool
	// Raw prints the stream's messages instead of lifecycle events.
	Raw bool
	// MetricsAddr serves the generator's metrics and health; empty for none.
	MetricsAddr string
	// Output is text or json. With json everything goes to Out, an object a line.
	Output string
	Out    io.Writer
	Err    io.Writer
}

const (
	dialTimeout = 10 * time.Second
	// lookEvery is how often the state is looked at.
	lookEvery = 100 * time.Millisecond
	// identifyEvery is how often a new connection is looked for.
	identifyEvery = 5 * time.Second
	// longestPeriod is the longest relist period that a stream can earn, as by default.
	longestPeriod = 300 * time.Second
)

// Run watches until ctx ends or the time is up, prints what happens, and returns the summary.
func Run(ctx context.Context, o Options) (*Summary, error) {
	w, err := attach(ctx, o)
	if err != nil {
		return nil, err
	}
	defer w.client.Close()
	contested := contested(w.version)
	if contested && !o.TakeEvents && o.Mode == worker.Evented {
		if o.Raw {
			return nil, fmt.Errorf("--raw needs the event stream, and %s gives each event to one client only: "+
				"--take-events takes them away from the agent of this node", w.version)
		}
		o.Mode = worker.Generic
	}
	w.tap.contested = contested
	if err := w.generate(o); err != nil {
		return nil, err
	}
	if o.Output != "json" {
		fmt.Fprintf(o.Err, "watching %s on %s, read-only. Ctrl-C ends it.\n", w.version, w.client.Endpoint())
		if contested {
			fmt.Fprintln(o.Err, bench.Fold(map[bool]string{
				false: "This runtime gives each event to one client only, so the events are left to the agent of this node: changes are polled, and there is no verdict. --take-events takes the events.",
				true:  "This runtime gives each event to one client only: what comes here does not reach the agent of this node.",
			}[o.TakeEvents], 2))
		}
	}

	// The generator ends after the tap knows of the watch's end: calls ended then are no failures of
	// the runtime, and carry no deadline of ours.
	var group sync.WaitGroup
	runCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	if o.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Duration)
		defer cancel()
	}
	begun := time.Now()
	if o.MetricsAddr != "" {
		listener, err := net.Listen("tcp", o.MetricsAddr)
		if err != nil {
			return nil, fmt.Errorf("--metrics-addr: cannot serve metrics on %s: %w", o.MetricsAddr, err)
		}
		if o.Output != "json" {
			fmt.Fprintf(o.Err, "metrics on http://%s/metrics, health on /healthz\n", listener.Addr())
		}
		group.Go(func() { worker.ServeMetrics(runCtx, listener, w.registry, w.generator.Health) })
		group.Go(func() { w.identify(runCtx) })
	}
	group.Go(func() { stop(w.generator.Run(runCtx)) }) // its Watch ends then, and the loop
	p := &printer{watched: w, options: o, reports: make(map[pleg.Reason]int)}
	err = p.loop(ctx)
	last := w.generator.Stats().State // Idle once the generator has ended
	w.tap.close()
	stop(context.Canceled)
	group.Wait()
	if cause := context.Cause(runCtx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	summary, sumErr := p.sum(time.Since(begun), last)
	return summary, cmp.Or(err, sumErr, summary.failure(w.tap)) // an output that is full is full again
}

// watched is a generator on a runtime with all its observers.
type watched struct {
	client    *cri.Client
	version   cri.Version
	tap       *tap
	cache     *cache.Cache[cri.PodStatus]
	generator *pleg.Generator[cri.PodStatus]
	registry  prometheus.Gatherer
	info      *atomic.Pointer[string] // the runtime's name and version, as a metric's source
}

// attach reaches the runtime.
func attach(ctx context.Context, o Options) (w watched, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	w.tap, w.info = newTap(o.Raw), new(atomic.Pointer[string])
	w.client, err = cri.Dial(ctx, cri.Config{Endpoint: o.Endpoint, Dialer: o.Dialer, OnEvent: w.tap.message})
	if err != nil {
		return w, err
	}
	if w.version, err = w.client.Version(ctx); err != nil {
		err = errors.Join(err, w.client.Close())
	}
	return w, err
}

// contested reports whether a runtime gives each event to a single client: containerd 1.7.
func contested(v cri.Version) bool {
	version := strings.TrimPrefix(v.RuntimeVersion, "v")
	return v.RuntimeName == "containerd" && (version == "1.7" || strings.HasPrefix(version, "1.7."))
}

// generate makes the generator, which does not run yet.
func (w *watched) generate(o Options) error {
	registry := kubemetrics.NewKubeRegistry()
	set, err := metrics.New(registry, metrics.Options{})
	if err != nil {
		return err
	}
	w.registry, w.cache = registry, cache.New(cri.EmptyStatus)
	config := pleg.Config[cri.PodStatus]{
		Source: source{w.client, w.tap}, Cache: w.cache, Merge: cri.KeepIPs, Metrics: set, Recorder: w.tap, RelistMax: longestPeriod,
	}
	if o.Mode == worker.Evented {
		config.Stream = listener{w.client, w.tap}
	}
	if w.generator, err = pleg.New(config); err != nil {
		return err
	}
	w.name(w.version)
	set.SetGauges(w.generator.Gauges, w.client.Counts, func(yield func(string, float64)) { yield(*w.info.Load(), 1) })
	return nil
}

// name sets the runtime of the metrics.
func (w *watched) name(v cri.Version) {
	w.info.Store(new("runtime/" + v.RuntimeName + "/" + v.RuntimeVersion))
}

// identify asks the runtime behind each new connection for its version: an upgrade restarts it.
func (w *watched) identify(ctx context.Context) {
	connects := w.client.Stats().Connects
	for bench.Sleep(ctx, identifyEvery) == nil {
		now := w.client.Stats().Connects
		if now == connects {
			continue
		}
		if v, err := w.client.Version(ctx); err == nil {
			w.name(v)
			connects = now
		}
	}
}

// loop prints until ctx ends.
func (p *printer) loop(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	err := p.header()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-p.generator.Watch():
			if !ok {
				return nil
			}
			if !p.options.Raw {
				err = p.event(e, time.Now())
			}
		case now := <-ticker.C:
			err = p.look(now)
		}
	}
	return fmt.Errorf("print the events: %w", err)
}
