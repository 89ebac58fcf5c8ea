// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package watch attaches a generator to a runtime, read-only, and prints what it tells.
//
// # Model
//
// One loop prints lifecycle events as they come and, several times a second, what changed of the stream's state, the relist period and the number of
// missed events. A pod's name comes from the cache; those of removed pods are remembered for a while.
//
// # Concurrency
//
// [Run] returns when its context ends and all it started has ended.
//
// # Errors
//
// Run fails if the runtime cannot be reached at first. A runtime that goes away later is waited for.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Options are those of a watch.
type Options struct {
	Endpoint string
	// Mode is worker.Evented or worker.Generic.
	Mode string
	// Namespace, unless empty, is the only one whose pods are printed.
	Namespace string
	// Duration ends the watch; 0 lets it last until its context ends.
	Duration time.Duration
	// StatusEvery is how often the state is printed while nothing happens; 0 is never.
	StatusEvery time.Duration
	// Output is text or json.
	Output string
	Out    io.Writer
	Err    io.Writer
}

const (
	dialTimeout = 10 * time.Second
	// lookEvery is how often the state is looked at.
	lookEvery = 100 * time.Millisecond
)

// Run watches until ctx ends or the time is up.
func Run(ctx context.Context, o Options) error {
	if o.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Duration)
		defer cancel()
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	client, err := cri.Dial(dialCtx, cri.Config{Endpoint: o.Endpoint})
	if err != nil {
		return err
	}
	defer client.Close()
	version, err := client.Version(dialCtx)
	if err != nil {
		return err
	}
	statuses := cache.New(cri.EmptyStatus)
	config := pleg.Config[cri.PodStatus]{Source: client, Cache: statuses, Merge: cri.KeepIPs}
	if o.Mode == worker.Evented {
		config.Stream = client
	}
	generator, err := pleg.New(config)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Err, "watching %s on %s, read-only. Ctrl-C ends it.\n", version, client.Endpoint())

	var group sync.WaitGroup
	runCtx, stop := context.WithCancelCause(ctx)
	group.Go(func() { stop(generator.Run(runCtx)) })
	p := newPrinter(o, generator, statuses)
	err = p.loop(runCtx)
	stop(nil)
	group.Wait()
	if cause := context.Cause(runCtx); err == nil && ctx.Err() == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	p.summary(client.Stats().Calls)
	return err
}

// loop prints until ctx ends.
func (p *printer) loop(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-p.generator.Watch():
			if !ok {
				return nil
			}
			err = p.event(e, time.Now())
		case now := <-ticker.C:
			err = p.look(now)
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
}

// summary tells what it was, on standard error.
func (p *printer) summary(calls map[string]uint64) {
	st := p.generator.Stats()
	total := uint64(0)
	for _, n := range calls {
		total += n
	}
	fmt.Fprintf(p.options.Err, "%d events printed; %d received from the runtime, %d missed, %d owed; %d lists, %d reads of one pod, %d calls; %d reconnects\n",
		p.printed, st.Claims, st.Missed, st.Owed, st.Relists, st.Inspections, total, st.Reconnects)
	if q := bench.Summarize(p.latency); q.Count > 0 {
		fmt.Fprintf(p.options.Err, "runtime's stamp → printed: p50 %s, p90 %s, p99 %s, max %s over %d events\n",
			bench.Short(q.P50), bench.Short(q.P90), bench.Short(q.P99), bench.Short(q.Max), q.Count)
	}
}
