// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const phaseLoad = "changing pods"

// measure changes pods, lets them settle, and judges.
func (r *runner) measure(ctx context.Context) (*bench.Result, error) {
	r.catchUp(r.asked)
	if r.asked.Err() != nil {
		return nil, context.Cause(r.asked)
	}
	before := r.driver.Stats()
	err := r.eachSide(func(_ int, s *side) (err error) {
		if err = s.process.Tell("Probe", r.options.ProbeRate); err == nil {
			s.begin, err = s.process.Report(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	runtime, cpuBefore := r.runtimeCPU(ctx)
	begin := bench.Now()
	span := r.meter.Begin()
	r.enter(phaseLoad)
	r.mu.Lock()
	r.loadBegan = time.Now()
	r.setUp = before.Changes
	r.mu.Unlock()
	r.announce()

	var restarting sync.WaitGroup
	restarting.Go(func() { r.restart(r.asked) })
	r.drive(ctx, r.options.Duration)
	restarting.Wait()
	end := bench.Now()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	after := r.driver.Stats()
	runtimeAfter, cpuAfter := r.runtimeCPU(ctx)
	err = r.eachSide(func(_ int, s *side) (err error) {
		if err = s.process.Tell("Probe", 0.0); err == nil {
			s.end, err = s.process.Report(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}

	_, stood := span.Took()
	for _, s := range r.sides { // usually all stand, or the one that has no CPU
		stood = max(stood, s.end.Progress.Stood-s.begin.Progress.Stood)
	}

	consistency, err := r.converge(r.asked)
	interrupted := r.asked.Err() != nil && ctx.Err() == nil
	if err != nil && !interrupted {
		return nil, err
	}
	strangers := []string{}
	if r.fake == nil && !r.options.BesideKubelet && !interrupted {
		found, err := load.Look(ctx, r.conn)
		if err != nil {
			return nil, err
		}
		strangers = append(strangers, found.Strangers...)
	}
	long := r.options.Duration
	if interrupted {
		consistency = make([]bench.ConsistencyResult, len(r.sides))
		long = min(long, time.Duration(end-begin))
	}
	if err := r.eachSide(func(_ int, s *side) (err error) { s.final, err = s.process.Report(ctx); return err }); err != nil {
		return nil, err
	}
	r.collect(ctx)

	result := &bench.Result{
		Schema: bench.Schema, Interrupted: interrupted, Strangers: strangers,
		Runtime: r.runtime(),
		Load: bench.LoadResult{
			Pods:            r.options.Pods,
			Containers:      r.options.Containers,
			Rate:            r.options.Rate,
			DurationSeconds: long.Seconds(),
			Seed:            r.options.Seed,
			Faults: append(
				[]string{},
				r.faults.Strings()...),
			Changes:     after.Changes - before.Changes,
			Broken:      after.Broken,
			Errors:      after.Errors,
			FirstErrors: after.FirstErrors,
			CallSeconds: callSeconds(after.Calls, begin, end),
		},
	}
	if interrupted {
		result.Gone = r.whyGone()
	}
	result.StoodSeconds = stood.Seconds()
	result.Load.AchievedRate = float64(result.Load.Changes) / time.Duration(end-begin).Seconds()
	if result.Load.Errors == nil {
		result.Load.Errors = map[string]int{}
		result.Load.FirstErrors = map[string]string{}
	}
	inWindow := func(at int64) bool { return at >= begin && at <= end }
	wanted := func(at int64) bool { return !r.outage.during(at) }
	var sides []bench.ComparisonResult
	for i, s := range r.sides {
		sides = append(sides, s.result(consistency[i], inWindow, wanted))
	}
	if r.options.WantTimeline {
		for _, s := range r.sides {
			result.Series = append(result.Series, s.changes(begin, inWindow))
		}
	}
	result.ComparisonResult = sides[0]
	if len(sides) > 1 {
		result.Comparison = &sides[1]
	}
	if runtime != 0 && runtime == runtimeAfter { // that of an ended process has gone with the process
		result.Cost.RuntimeCPUSeconds = new(cpuAfter - cpuBefore)
	}
	if r.fake != nil {
		last, lost := r.fake.totals()
		result.Events.RuntimeEmitted = new(int(last.Stats.Emitted))
		if lost > 0 {
			return nil, fmt.Errorf(
				"the fake runtime's history dropped %d changes before they were collected: the rate is too high to judge by",
				lost,
			)
		}
	}
	result.Outage = r.outage.result(begin, r.sides[0])
	result.Judge(readsLie(r.faults))
	return result, nil
}

// runtime names the runtime.
func (r *runner) runtime() bench.RuntimeResult {
	hello := r.sides[0].hello
	named := bench.RuntimeResult{
		Name:     printable.Text(hello.RuntimeName),
		Version:  printable.Text(hello.RuntimeVersion),
		Endpoint: "unix://" + r.socket,
	}
	if r.fake != nil {
		named.Profile = r.options.Profile
	}
	return named
}

// catchUp waits until the generators have seen the pods of the setup, so that only the load is
// measured, and until a stream has earned a longer relist period, as on a node that has run for a
// while; not for long, because a faulty runtime may prevent both.
func (r *runner) catchUp(ctx context.Context) {
	r.enter("letting the PLEGs see them")
	made := bench.Now()
	trusted := trustedPeriods * cmp.Or(r.options.RelistBase, time.Second)
	if longest := r.options.RelistMax; longest > 0 {
		trusted = min(trusted, longest)
	}
	_ = r.eachSide(func(_ int, s *side) error {
		s.await(ctx, catchUpFor, func(p worker.Progress) bool {
			return p.Covered > made && p.DirtyPods+p.Inspecting == 0 &&
				(p.State != pleg.StreamConnected || p.RelistPeriod >= trusted)
		})
		return nil
	})
}

// eachSide calls f for every side at once and joins the errors.
func (r *runner) eachSide(f func(int, *side) error) error {
	errs := make([]error, len(r.sides))
	var group sync.WaitGroup
	for i, s := range r.sides {
		group.Go(func() { errs[i] = f(i, s) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// converge lifts faults and compares every cache with the runtime, before and after another relist.
func (r *runner) converge(ctx context.Context) ([]bench.ConsistencyResult, error) {
	r.enter("comparing")
	if r.fake != nil {
		if err := r.fake.SetFaults(ctx, fakeruntime.Faults{}); err != nil {
			return nil, err
		}
	}
	if !r.jobsOnly && ctx.Err() == nil {
		if err := r.driver.Refill(ctx); err != nil {
			r.tell("the load's pods could not all be made again: %v", err)
		}
	}
	ours := r.runID + "-"
	if r.fake != nil {
		ours = "" // all pods are the run's
	}
	results := make([]bench.ConsistencyResult, len(r.sides))
	err := r.eachSide(func(i int, s *side) (err error) {
		c := &results[i]
		if c.CheckedPods, c.BeforeRelist, _, err = s.compare(ctx, r.read, ours, settleFor); err != nil {
			return err
		}
		asked := bench.Now()
		if err := s.process.Tell("Relist", true); err != nil {
			return err
		}
		// A list hanging since before the end of the faults has to time out first.
		relisted := func(p worker.Progress) bool { return p.Covered > asked }
		if _, ok := s.await(ctx, 2*r.options.ReadTimeout+30*time.Second, relisted); !ok {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf(
				"the %s PLEG has not relisted although it was asked to: %s",
				s.mode,
				s.now().Health,
			)
		}
		if err := bench.Sleep(ctx, graceFor); err != nil {
			return err
		}
		c.CheckedPods, c.Mismatches, c.Differences, err = s.compare(ctx, r.read, ours, convergeFor)
		return err
	})
	return results, err
}

// runtimeCPU returns the ID of the runtime's process, and its CPU time in seconds; no ID if
// unknown.
func (r *runner) runtimeCPU(ctx context.Context) (pid int, seconds float64) {
	if r.fake == nil {
		return peerCPU(r.socket)
	}
	r.collect(ctx)
	last, _ := r.fake.totals()
	return r.fake.process.PID(), last.CPUSeconds
}

// callSeconds sums up the calls begun between two stamps.
func callSeconds(calls []load.Call, from, to int64) bench.LatencyResult {
	var took []time.Duration
	for _, c := range calls {
		if c.At >= from && c.At <= to {
			took = append(took, c.Took)
		}
	}
	return bench.Summarize(took).Seconds()
}
