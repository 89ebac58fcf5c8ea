// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Run does one run. It returns what was measured until the context ended, if it did, together with the context's error. The recorders
// do not log: client-go's write a line for each event that they lose.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	srv, err := openServer(&o)
	if err != nil {
		return nil, err
	}
	defer srv.close()

	m := newMeter()
	config := *srv.config
	var transports []*http.Transport
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		if t, ok := rt.(*http.Transport); ok {
			transports = append(transports, t)
		}
		return m.wrap(rt)
	})
	defer func() {
		for _, t := range transports {
			t.CloseIdleConnections()
		}
	}()

	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()

	life, end := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard())) // of the recorders: they outlive an interrupt, to shut down in order
	defer end()
	n := 1
	if o.Load == LoadNodes {
		n = o.Nodes
	}
	targets := make([]*target, n)
	for i := range targets {
		if targets[i], err = newTarget(life, &o, &config, nodeName(i)); err != nil {
			return nil, errors.Join(fmt.Errorf("recorder of node %d: %w", i, err), stopAll(life, targets[:i], nil))
		}
	}

	begin := time.Now()
	run := strconv.FormatInt(begin.UnixNano(), 36)
	stopSampling := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() { m.sample(stopSampling, begin, o.Progress) })

	runtime.ReadMemStats(&before)
	spent := emitLoad(ctx, &o, m, run, targets)
	runtime.ReadMemStats(&after)
	m.look()
	loaded := time.Since(begin)
	m.enter("settle")
	waitForQuiet(ctx, m, &o, begin)
	m.enter("shutdown")
	var unsent int64
	limit, cancel := context.WithTimeout(life, o.Shutdown)
	stopErr := stopAll(limit, targets, &unsent)
	cancel()
	end()
	close(stopSampling)
	sampler.Wait()

	objects, occurrences, err := srv.stored(context.WithoutCancel(ctx), run)
	r := &Report{
		Load: o.Load, Recorder: o.Recorder, Fault: o.Fault, FaultSeconds: o.FaultFor.Seconds(), Nodes: n,
		Emitted: m.emitted.Load(), Stored: occurrences, Objects: objects, Unsent: unsent,
		Calls: m.calls.Load(), FailedCalls: m.failed.Load(), Methods: m.methods,
		LoadSeconds: loaded.Seconds(), TotalSeconds: time.Since(begin).Seconds(),
		HeapPeakMiB: float64(m.peakHeap) / (1 << 20), GoroutinesPeak: m.peakGor, GoroutinesBefore: goroutines,
	}
	if o.Fault == FaultNone {
		r.FaultSeconds = 0
	}
	if r.Emitted > 0 {
		r.NanosPerEvent = float64(spent.Nanoseconds()) / float64(r.Emitted)
		r.AllocsPerEvent = float64(after.Mallocs-before.Mallocs) / float64(r.Emitted)
	}
	for _, n := range m.perSecond {
		r.CallsPerSecondPeak = max(r.CallsPerSecondPeak, n)
	}
	r.count(targets)
	return r, errors.Join(err, stopErr, ctx.Err())
}

func openServer(o *Options) (*server, error) {
	if o.Kubeconfig != "" {
		return remote(o.Kubeconfig)
	}
	return embedded(o)
}

// waitForQuiet waits until the recorder has said what it has to say: no call under way and none for a while, the fault over, and, in case it holds back after a fault,
// as long as the fault was once more.
func waitForQuiet(ctx context.Context, m *meter, o *Options, begin time.Time) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	calm := o.Quiet
	if o.Fault != FaultNone {
		calm = max(o.Quiet, o.FaultFor)
	}
	for deadline := time.Now().Add(o.Settle); time.Now().Before(deadline); {
		last := time.Unix(0, m.last.Load())
		if since := max(begin.UnixNano(), last.UnixNano()); m.underway.Load() == 0 && time.Since(time.Unix(0, since)) >= calm && (o.Fault == FaultNone || time.Since(begin) >= o.FaultFor) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stopAll shuts the recorders down, a few at a time.
func stopAll(ctx context.Context, targets []*target, unsent *int64) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, 32)
	for _, t := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			n, err := t.stop(ctx)
			mu.Lock()
			defer mu.Unlock()
			if unsent != nil {
				*unsent += n
			}
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
