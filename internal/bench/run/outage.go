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

// outage is a restart of the fake runtime, written by a goroutine that ends before the first
// reader. Its fields are stamps; 0 if never reached.
type outage struct{ at, up, reconnected, relisted int64 }

// during reports whether a change happened while the runtime was away or the generator had not
// caught up.
func (o *outage) during(at int64) bool {
	return o != nil && at >= o.at && (o.relisted == 0 || at <= o.relisted)
}

// restart restarts the runtime when due, and waits for the generator to be back.
func (r *runner) restart(ctx context.Context) {
	if r.options.RestartAt == 0 || bench.Sleep(ctx, r.options.RestartAt) != nil {
		return
	}
	s := r.sides[0]
	connects := s.now().Reconnects
	r.collect(ctx)
	o := &outage{at: bench.Now()}
	r.outage = o
	if err := r.fake.Restart(ctx, fakeproc.Outage{Down: r.options.OutageFor, Initializing: initializing}); err != nil {
		if r.asked.Err() == nil {
			r.fail(err)
		}
		return
	}
	if bench.Sleep(ctx, r.options.OutageFor+initializing) != nil {
		return
	}
	o.up = bench.Now()
	const patience = time.Minute
	if p, ok := s.await(ctx, patience, func(p worker.Progress) bool { return p.Covered > o.up }); ok {
		o.relisted = p.At
	}
	if s.mode != worker.Evented {
		return
	}
	if p, ok := s.await(ctx, patience, func(p worker.Progress) bool { return p.Reconnects > connects }); ok {
		o.reconnected = p.At
	}
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
		AtSeconds:          time.Duration(o.at - begin).Seconds(),
		DownSeconds:        since(o.up),
		ReconnectedSeconds: since(o.reconnected),
		RelistedSeconds:    since(o.relisted),
		Latency:            bench.Summarize(s.judge(o.during).Latency).Seconds(),
	}
}
