// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package watch attaches a generator to a runtime, read-only, and prints its events and reports,
// and in the end the worth of the runtime's event stream.
//
// # Model
//
// A tap stands between the generator and its client, and sees the work of both. The client's
// connections belong to a process of package reader, so that a watch that is stopped holds up no
// runtime. A loop prints
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
// the runtime has succeeded until the end. Run waits for a runtime that goes away later. A time in
// which this process does not run is no part of the time that the runtime has for an answer.
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
	"time"

	kubemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/reader"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/identity"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Options are those of a watch.
type Options struct {
	Endpoint string
	// Dialer, when set, connects to the runtime; Endpoint is then only its name.
	Dialer func(context.Context) (net.Conn, error)
	// Reader are the arguments with which this program is a reader of package reader, which then
	// makes the calls; empty to call from this process.
	Reader []string
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
	// Quiet prints no lifecycle events, and changes of the state once a minute at most. The user sets
	// it where a log of every event would cost more than its worth. Reports are printed as ever.
	Quiet bool
	// DoctorEvery is how often package doctor examines the runtime beside the watch; 0 is never.
	DoctorEvery time.Duration
	// Meter beats while this process runs; nil to have the watch beat one.
	Meter *standstill.Meter
	// MetricsAddr serves the generator's metrics and health; empty for none.
	MetricsAddr string
	// Output is text or json. With json everything goes to Out, an object a line.
	Output string
	Out    io.Writer
	Err    io.Writer
	// OutColumns and ErrColumns are the widths to which lines of these are folded.
	OutColumns, ErrColumns bench.Width
}

const (
	dialTimeout = 10 * time.Second
	// lookEvery is how often the state is looked at.
	lookEvery = 100 * time.Millisecond
	// quietEvery is how often a quiet watch prints changes of the state.
	quietEvery = time.Minute
	// longestPeriod is the longest relist period that a stream can earn, as by default.
	longestPeriod = 300 * time.Second
)

// Run watches until ctx ends or the time is up, prints what happens, and returns the summary.
func Run(ctx context.Context, o Options) (*Summary, error) {
	if o.Meter == nil {
		meter, stop := standstill.Start()
		defer stop()
		o.Meter = meter
	}
	w, err := attach(ctx, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
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
	rounds := w.rounds(o)
	if o.Output != "json" {
		o.note(
			"watching %s on %s, read-only. Ctrl-C ends it.",
			printable.Text(w.version.String()),
			w.client.Endpoint(),
		)
		if contested {
			o.note("%s", map[bool]string{
				false: "This runtime gives each event to one client only, so the events are left to the agent of this node: changes are polled, and there is no verdict. --take-events takes the events.",
				true:  "This runtime gives each event to one client only: what comes here does not reach the agent of this node.",
			}[o.TakeEvents])
		}
	}

	// The generator ends after the tap knows of the watch's end: calls ended then are no failures of
	// the runtime, and carry no deadline of ours.
	var group sync.WaitGroup
	runCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	if o.MetricsAddr != "" {
		listener, err := worker.ListenForMetrics(o.MetricsAddr)
		if err != nil {
			return nil, err
		}
		if o.Output != "json" {
			o.note("metrics on http://%s/metrics, health on /healthz", listener.Addr())
		}
		group.Go(func() { worker.ServeMetrics(runCtx, listener, w.registry, w.generator.Health) })
		group.Go(func() { w.runtime.Follow(runCtx) })
	}
	group.Go(func() { stop(w.generator.Run(runCtx)) }) // its Watch ends then, and the loop
	if rounds != nil {
		group.Go(func() { rounds.Run(runCtx) })
	}
	p := &printer{watched: w, options: o, reports: make(map[pleg.Reason]int)}
	group.Go(func() {
		for bench.Sleep(runCtx, aliveEvery) == nil {
			w.tap.beat()
		}
	})
	err = p.header()
	if err == nil {
		err = p.start(ctx)
	}
	begun := time.Now()
	if err == nil {
		err = p.judged(ctx)
	}
	if err == nil && runCtx.Err() == nil && o.Mode == worker.Evented {
		err = p.close(runCtx, o.closing())
	}
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

// note writes a line for people beside the events.
func (o Options) note(format string, args ...any) {
	width := o.ErrColumns
	if width == 0 {
		width = bench.Columns
	}
	fmt.Fprintln(o.Err, width.Fold(fmt.Sprintf(format, args...), 2))
}

// watched is a generator on a runtime with all its observers.
type watched struct {
	client    *cri.Client
	reader    *reader.Supervisor // makes the client's connections; nil: the client does
	version   cri.Version
	tap       *tap
	cache     *cache.Cache[cri.PodStatus]
	generator *pleg.Generator[cri.PodStatus]
	registry  kubemetrics.KubeRegistry
	runtime   *identity.Runtime // as a metric
}

// attach reaches the runtime.
func attach(ctx context.Context, o Options) (w watched, err error) {
	ctx, cancel := o.Meter.WithTimeout(ctx, dialTimeout)
	defer cancel()
	w.tap = newTap(o.Raw)
	for {
		span := o.Meter.Begin()
		w.client, err = cri.Dial(ctx, cri.Config{Endpoint: o.Endpoint, Dialer: o.Dialer, OnEvent: w.tap.message})
		_, stood := span.Took()
		if err == nil || stood == 0 || ctx.Err() != nil {
			break
		}
		// Once more: grpc gives up to connect by the clock, whether or not this process runs.
	}
	if err != nil {
		return w, err
	}
	w.version, err = w.client.Version(ctx)
	if err == nil && len(o.Reader) > 0 && o.Dialer == nil {
		err = w.readBy(o.Reader)
	}
	if err != nil {
		err = errors.Join(err, w.client.Close())
	}
	return w, err
}

// readBy leaves the runtime's connections to readers: this process may be stopped at any time.
func (w *watched) readBy(args []string) error {
	endpoint := w.client.Endpoint()
	w.reader = reader.NewSupervisor(strings.TrimPrefix(endpoint, "unix://"), args...)
	w.tap.reader = w.reader
	client, err := cri.New(cri.Config{Endpoint: endpoint, Dialer: w.reader.Dial, OnEvent: w.tap.message})
	if err != nil {
		return err
	}
	_ = w.client.Close()
	w.client = client
	return nil
}

// close ends the client and its readers.
func (w *watched) close() {
	_ = w.client.Close()
	if w.reader != nil {
		_ = w.reader.Close()
	}
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
	w.registry = registry
	w.cache = cache.New(cri.EmptyStatus)
	config := pleg.Config[cri.PodStatus]{
		Source:    source{w.client, w.tap},
		Cache:     w.cache,
		Merge:     cri.KeepIPs,
		Metrics:   set,
		Recorder:  w.tap,
		RelistMax: longestPeriod,
	}
	if o.Mode == worker.Evented {
		config.Stream = listener{w.client, w.tap}
	}
	if w.generator, err = pleg.New(config); err != nil {
		return err
	}
	w.runtime = identity.Of(w.client)
	w.runtime.Is(w.version)
	set.SetGauges(
		w.generator.Gauges,
		w.client.Counts,
		w.runtime.Gauges,
	)
	return nil
}

// closing is the last part of the watch, in which a list proves what has happened and events on
// their way arrive.
func (o Options) closing() time.Duration {
	const enough = 2200 * time.Millisecond // what the judge takes an event to need, and the list
	if o.Mode != worker.Evented {
		return 0
	}
	if o.Duration > 0 {
		return min(o.Duration/2, enough)
	}
	return enough
}

// settledWithin is how long a watch waits for its first list and its stream before its duration
// counts from whatever there is.
const settledWithin = 10 * time.Second

// start prints what comes until the first list has ended and the stream has been opened or refused:
// the duration of the watch counts from then.
func (p *printer) start(ctx context.Context) error {
	ctx, cancel := p.options.Meter.WithTimeout(ctx, settledWithin)
	defer cancel()
	for ctx.Err() == nil && !p.settled() {
		brief, stop := context.WithTimeout(ctx, lookEvery)
		err := p.loop(brief)
		stop()
		if err != nil {
			return err
		}
	}
	p.connected = 0
	p.lookedAt = time.Now()
	return nil
}

// settled reports whether the first list has ended, and the stream is open or refused.
func (p *printer) settled() bool {
	if !p.tap.hasListed() {
		return false
	}
	if p.options.Mode != worker.Evented {
		return true
	}
	state := p.generator.Stats().State
	return state != pleg.StreamIdle && state != pleg.StreamOpening
}

// judged prints what comes until the duration is up, but for the closing part.
func (p *printer) judged(ctx context.Context) error {
	if p.options.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.options.Duration-p.options.closing())
		defer cancel()
	}
	return p.loop(ctx)
}

// close asks for a last list, and prints what comes for a time.
func (p *printer) close(ctx context.Context, long time.Duration) error {
	if p.options.Duration == 0 && p.options.Output != "json" {
		p.options.note("summing up: a last list, and events on their way; Ctrl-C again ends at once")
	}
	p.closed = time.Now()
	p.generator.RequestRelist("")
	listing, cancelListing := p.options.Meter.WithTimeout(ctx, listsWithin)
	defer cancelListing()
	for listing.Err() == nil && !p.tap.listedSince(p.closed) {
		brief, cancel := context.WithTimeout(listing, lookEvery)
		err := p.loop(brief)
		cancel()
		if err != nil {
			return err
		}
	}
	if !p.tap.listedSince(p.closed) {
		return nil // events on their way have had their time
	}
	ctx, cancel := p.options.Meter.WithTimeout(ctx, long)
	defer cancel()
	return p.loop(ctx)
}

// listsWithin is how long the last list may take. It is longer than an event needs.
const listsWithin = 3 * time.Second

// loop prints until ctx ends.
func (p *printer) loop(ctx context.Context) (err error) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
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
