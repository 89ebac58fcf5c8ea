// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/identity"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// controller is the reporting controller of the agent's Events.
const controller = "pleg-agent"

// agent is a running agent: the runtime's client, the generator, the reporter and the recorder.
type agent struct {
	client      *cri.Client
	runtime     *identity.Runtime // as a metric
	generator   *pleg.Generator[cri.PodStatus]
	reporter    *exits.Reporter[cri.PodStatus]
	broadcaster *events.Broadcaster
	registry    *prometheus.Registry
	printer     *printer // nil: an API server stores the Events
}

// parts are the components of an agent besides its flags.
type parts struct {
	sink clientevents.EventSink
	// noRoster: the sink does not outlive the process.
	noRoster bool
	// dial connects to the runtime, nil for the endpoint.
	dial func(context.Context) (net.Conn, error)
}

// newAgent makes an agent, which starts nothing.
func newAgent(o *options, with parts) (a *agent, err error) {
	a = &agent{registry: prometheus.NewRegistry()}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	own, err := newMeter(a.registry)
	if err != nil {
		return nil, err
	}
	set, err := metrics.New(metrics.Plain(a.registry), metrics.Options{})
	if err != nil {
		return nil, err
	}
	a.printer, _ = with.sink.(*printer)
	sink := exits.NewSink(&timedSink{with.sink, own.stored})
	a.broadcaster, err = events.New(events.Options{
		Sink:     sink,
		Instance: instance(o.node),
		NoRoster: with.noRoster,
	})
	if err != nil {
		return nil, err
	}
	if err := metrics.NewEvents(metrics.Plain(a.registry), a.broadcaster.Metrics); err != nil {
		return nil, err
	}
	a.client, err = cri.New(cri.Config{Endpoint: o.endpoint, Dialer: with.dial})
	if err != nil {
		return nil, err
	}
	a.runtime = identity.Of(a.client)
	recorder := a.broadcaster.NewSeriesRecorder(nil, controller)
	statuses := cache.New(cri.EmptyStatus)
	config := pleg.Config[cri.PodStatus]{
		Source:  a.client,
		Stream:  a.client,
		Cache:   statuses,
		Merge:   cri.KeepIPs,
		Metrics: set,
	}
	if o.nodeEvents {
		// kubectl describe node shows the Events with the node's UID, or with its name in the UID's place,
		// as a kubelet's.
		node := &corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Node",
			Name:       o.node,
			UID:        types.UID(o.node),
		}
		config.Recorder = embed.SeriesRecorder(recorder, node)
	}
	a.generator, err = pleg.New(config)
	if err != nil {
		return nil, err
	}
	set.SetGauges(a.generator.Gauges, a.client.Counts, a.runtime.Gauges)
	choice, err := o.choice()
	if err != nil {
		return nil, err
	}
	a.reporter, err = exits.New(exits.Config[cri.PodStatus]{
		Generator:     a.generator,
		Statuses:      statuses,
		View:          exits.FromCRI,
		Exit:          a.client.Exit,
		Recorder:      recorder,
		Sink:          sink,
		Unsent:        a.unsent,
		Path:          o.state,
		Choice:        choice,
		Settle:        o.settle,
		NamespaceRate: exits.Rate{PerSecond: o.namespaceRate, Burst: o.namespaceBurst},
		NodeRate:      exits.Rate{PerSecond: o.nodeRate, Burst: o.nodeBurst},
		Observe:       own.observe,
		Restarted:     own.restarted,
	})
	if err != nil {
		return nil, err
	}
	return a, reporterStats(a.registry, a.reporter.Stats)
}

// unsent returns the number of occurrences that the API server does not know.
func (a *agent) unsent() int64 { return a.broadcaster.Stats().Unsent }

// instance returns the reporting instance of a node: the same after a restart, 128 bytes at most.
func instance(node string) string {
	const longest = 128
	name := controller + "-" + node
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	return controller + "-" + hex.EncodeToString(sum[:])
}

// flushFor is how long an ending agent waits for the API server, by the wall clock. The kubelet
// kills the agent by the wall clock, and an agent that has stood still must first save the unsent
// Events.
const flushFor = 5 * time.Second

// run works until ctx ends: then the ledger is written, the recorder sends the waiting Events, and
// the ledger gets the unsent Events. run also returns once nothing can be printed any more.
func (a *agent) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	recording, stop := context.WithCancel(klog.NewContext(context.Background(), logger))
	defer stop()
	var recorder, generator, follower sync.WaitGroup
	var generated error
	recorder.Go(func() { _ = a.broadcaster.Run(recording) }) // its errors are about calls never made here
	working, leave := context.WithCancel(ctx)                // also left where the generator or the reporter ends by itself
	defer leave()
	generator.Go(func() { generated = a.generator.Run(working) })
	follower.Go(func() { a.runtime.Follow(working) })
	if a.printer != nil {
		defer context.AfterFunc(a.printer.out.Usable(), leave)()
	}
	err := a.reporter.Run(working)
	leave()
	generator.Wait()
	follower.Wait()
	kept := a.flush(recording)
	stop()
	if a.printer != nil {
		a.printer.out.End(nil)
	}
	recorder.Wait()
	saved := a.reporter.Save(kept)
	if errors.Is(saved, err) {
		err = nil // of the same write, which saved tells more of
	}
	return errors.Join(err, generated, saved, a.client.Close())
}

// flush has the recorder send the waiting Events, unless nothing can be printed, and returns the
// number of occurrences left unsent.
func (a *agent) flush(ctx context.Context) (unsent int64) {
	ctx, cancel := context.WithTimeout(ctx, flushFor)
	defer cancel()
	if a.printer != nil {
		defer context.AfterFunc(a.printer.out.Usable(), cancel)()
	}
	var left *events.UnsentError
	if !errors.As(a.broadcaster.ShutdownWithContext(ctx), &left) {
		return 0
	}
	if a.printer == nil || a.printer.out.Usable().Err() == nil { // else its error says more
		klog.FromContext(ctx).Error(left, "Events are kept for the next start, if there is a file for them (--state)")
	}
	return left.Occurrences
}

// handler answers /metrics, /healthz and /readyz.
func (a *agent) handler() http.Handler {
	mux := http.NewServeMux()
	answering := func(state func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { answer(w, state()) }
	}
	options := promhttp.HandlerOpts{Registry: a.registry, ErrorHandling: promhttp.ContinueOnError}
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, options))
	mux.Handle("GET /healthz", answering(a.generator.Health))
	mux.Handle("GET /readyz", answering(a.ready))
	return mux
}

// ready returns nil once the runtime is known as a whole.
func (a *agent) ready() error {
	if !a.generator.HasSynced() {
		return errors.New("the container runtime has not been read as a whole yet")
	}
	return a.generator.Health()
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, printable.Text(err.Error()))
		return
	}
	fmt.Fprintln(w, "ok")
}

// run runs the agent of the flags.
func (o *options) run(ctx context.Context, out, errOut io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if o.lasting > 0 { // the agent ends as by a signal: calls get no deadline
		defer time.AfterFunc(o.lasting, end).Stop()
	}
	with, finish, err := o.connect(ctx, out, errOut)
	if err != nil {
		return err
	}
	defer finish()
	a, err := newAgent(o, with)
	if err != nil {
		return err
	}
	if cause := cli.Denial(o.endpoint); cause != "" { // access may be granted later
		klog.FromContext(ctx).Error(nil, "The runtime's socket is denied to this agent: "+cause)
	}
	serve, err := o.listen(a, errOut)
	if err != nil {
		return errors.Join(err, a.client.Close())
	}
	var served error
	var server sync.WaitGroup
	server.Go(func() {
		defer end() // an agent that cannot be watched ends
		served = serve(ctx)
	})
	err = a.run(ctx)
	end()
	server.Wait()
	if o.lasting > 0 && errors.Join(err, served) == nil && !a.generator.HasSynced() {
		err = fmt.Errorf("no list of the runtime at %s has succeeded in %v: what ended on it is not known", o.endpoint, o.lasting)
	}
	if a.printer == nil {
		return errors.Join(err, served)
	}
	events, failed := a.printer.total()
	if failed == nil {
		fmt.Fprintln(errOut, summary(a.reporter.Stats(), events))
	}
	return errors.Join(err, served, failed)
}

// summary returns a sentence on the ends of a reporter, and the number of Events.
func summary(stats exits.Stats, events int) string {
	ends := 0
	for _, n := range stats.Ends {
		ends += int(n)
	}
	return counted(ends, "end") + " in " + counted(events, "Event") + "."
}

// counted returns a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// listen returns the function that serves --http-addr until its context ends.
func (o *options) listen(a *agent, errOut io.Writer) (serve func(context.Context) error, err error) {
	if o.httpAddr == "" {
		return func(ctx context.Context) error { <-ctx.Done(); return nil }, nil
	}
	listener, err := net.Listen("tcp", o.httpAddr)
	if err != nil {
		return nil, fmt.Errorf("--http-addr: %w", err)
	}
	fmt.Fprintf(errOut, "metrics on http://%s/metrics, also /healthz and /readyz\n", listener.Addr())
	server := &http.Server{
		Handler:           a.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    1 << 16,
	}
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		err := server.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}, nil
}

// since is from when on ends are told, in words: the file of --state remembers those that an agent
// before this one has not told.
func (o *options) since() string {
	if o.state == "" {
		return "now"
	}
	return "the last one told in " + o.state
}

// connect returns the parts for the flags, and finish for the end.
func (o *options) connect(ctx context.Context, out, errOut io.Writer) (with parts, finish func(), err error) {
	finish = func() {}
	if o.print {
		with.sink = newPrinter(out, o.output == "json")
		with.noRoster = true
	}
	switch {
	case o.fake:
		with.dial, finish, err = startFake(ctx)
		fmt.Fprintln(errOut, "A fake runtime, whose containers end in many ways. Ctrl-C ends it.")
		return with, finish, err
	case o.print:
		fmt.Fprintf(errOut, "Ends of containers on %s, from %s on. Ctrl-C ends it.\n", o.endpoint, o.since())
		return with, finish, nil
	}
	client, err := o.apiServer()
	if err != nil {
		return with, finish, err
	}
	with.sink = events.NewClientSink(client)
	return with, finish, nil
}
