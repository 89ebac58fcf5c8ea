// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// initializing is how long a restarted runtime answers calls with Unavailable.
const initializing = 200 * time.Millisecond

// outage is a restart or a kill of the fake runtime, written by a goroutine that ends before the
// first reader.
type outage struct {
	kind string
	// at, up, reconnected and relisted are stamps; 0 if never reached.
	at, up, reconnected, relisted int64
}

// during reports whether a change happened while the runtime was away or the generator had not
// caught up.
func (o *outage) during(at int64) bool {
	return o != nil && at >= o.at && (o.relisted == 0 || at <= o.relisted)
}

// runOutage restarts or kills the runtime when due, and waits for the generator to be back.
func (r *runner) runOutage(ctx context.Context) {
	o, after := &outage{kind: "restart"}, r.options.RestartAt
	if r.options.KillAt > 0 {
		o.kind, after = "kill", r.options.KillAt
	}
	if after == 0 || bench.Sleep(ctx, after) != nil {
		return
	}
	s := r.sides[0]
	connects := s.now().Reconnects
	r.collect(ctx)
	o.at = bench.Now()
	r.mu.Lock()
	r.outage = o
	r.mu.Unlock()
	if o.kind == "restart" {
		if err := r.fake.calls().Restart(ctx, fakeproc.Outage{Down: r.options.OutageFor, Initializing: initializing}); err != nil {
			r.breakUnlessAsked(err)
			return
		}
		if bench.Sleep(ctx, r.options.OutageFor+initializing) != nil {
			return
		}
	} else if err := r.killRuntime(ctx, o.at); err != nil {
		r.breakUnlessAsked(err)
		return
	}
	o.up = bench.Now()
	const patience = time.Minute
	p, ok := s.await(ctx, patience, func(p worker.Progress) bool { return p.Covered > o.up })
	if ok {
		o.relisted = p.At
	}
	if s.mode != worker.Evented {
		return
	}
	p, ok = s.await(ctx, patience, func(p worker.Progress) bool { return p.Reconnects > connects })
	if ok {
		o.reconnected = p.At
	}
}

// breakUnlessAsked ends the run with an error, unless the user asked for the end.
func (r *runner) breakUnlessAsked(err error) {
	if r.asked.Err() == nil {
		r.fail(err)
	}
}

// killRuntime kills the fake runtime, and starts an empty runtime in its place.
func (r *runner) killRuntime(ctx context.Context, at int64) error {
	r.fake.kill()
	for _, s := range r.sides {
		s.lost(at)
	}
	if err := bench.Sleep(ctx, r.options.OutageFor); err != nil {
		return err
	}
	if err := r.fake.start(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.factsFrom = bench.Now()
	r.mu.Unlock()
	for _, s := range r.sides {
		if err := s.process.Tell("Forget", true); err != nil {
			return err
		}
	}
	r.driver.Lost()
	return nil
}

func (o *outage) result(begin int64, s *side) *bench.OutageResult {
	if o == nil {
		return nil
	}
	since := func(t int64) float64 {
		if t == 0 {
			return 0
		}
		return time.Duration(t - o.at).Seconds()
	}
	return &bench.OutageResult{
		Kind: o.kind, AtSeconds: time.Duration(o.at - begin).Seconds(), DownSeconds: since(o.up), ReconnectedSeconds: since(o.reconnected),
		RelistedSeconds: since(o.relisted), Latency: bench.Summarize(s.judge(o.during).Latency).Seconds(),
	}
}
