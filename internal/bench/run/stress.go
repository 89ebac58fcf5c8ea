// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// stressParallel bounds the calls in flight of a stress test of the fake runtime; on a real
	// runtime the load's own bound holds.
	stressParallel = 64
	// jobChanges is the number of state changes of a short container.
	jobChanges = 4
	// keepsUp is the share of the requested rate that a runtime must achieve to keep up.
	keepsUp = 0.7
	// realUnderWay bounds the unfinished requests to a real runtime: a flooded runtime takes minutes
	// to recover, and calls that time out leave containers UNKNOWN.
	realUnderWay = 48
	// drainFor is how long begun containers may take to end after the last step.
	drainFor = 20 * time.Second
	// The default rates of a test.
	fakeStartRate, fakeMaxRate = 50, 5000
	realStartRate, realMaxRate = 5, 200
)

// StressOptions are those of a stress test. Of Options, Mode, Compare, Rate, Duration, ProbeRate
// and the interludes do not apply.
type StressOptions struct {
	Options
	// StartRate, MaxRate and Factor are the first rate, the largest, and the factor of each step, in
	// containers a second. Zero rates mean 50 and 5000 on the fake runtime, 5 and 200 on a real
	// runtime.
	StartRate, MaxRate, Factor float64
	// StepFor is how long a step lasts.
	StepFor time.Duration
}

// Validate reports every senseless option by the name of its flag.
func (o StressOptions) Validate() error {
	var errs []error
	o = o.filled()
	if !(o.StartRate > 0) || !(o.MaxRate >= o.StartRate) || o.MaxRate > 1e6 {
		errs = append(
			errs,
			fmt.Errorf(
				"--start-rate %v, --max-rate %v: the first must be above 0, and the second at least that, and at most 1000000",
				o.StartRate,
				o.MaxRate,
			),
		)
	}
	if !(o.Factor > 1) || o.Factor > 100 {
		errs = append(errs, fmt.Errorf("--factor %v: it must be above 1, and at most 100", o.Factor))
	}
	if o.StepFor < time.Second {
		errs = append(
			errs,
			fmt.Errorf(
				"--step %v: a step takes at least 1s, because that is how late an event must be to count",
				o.StepFor,
			),
		)
	}
	return errors.Join(append(errs, o.Options.Validate())...)
}

// filled sets the options fixed in a stress test.
func (o StressOptions) filled() StressOptions {
	start := float64(fakeStartRate)
	most := float64(fakeMaxRate)
	if o.Endpoint != "" {
		start = realStartRate
		most = realMaxRate
	}
	if o.StartRate == 0 {
		o.StartRate = start
	}
	if o.MaxRate == 0 {
		o.MaxRate = max(most, o.StartRate)
	}
	o.Mode = worker.Evented
	o.Compare = false
	o.Rate = 0
	o.Duration = max(o.StepFor, time.Second)
	o.ProbeRate = 0
	return o
}

// Stress performs KEP-3386's stress test: it makes containers that run to completion at a rising
// rate, in lasting pods, until the generator's histogram evented_pleg_connection_latency_seconds
// shows events above its 1-second bucket, or the runtime cannot make them faster, or the largest
// rate is reached. When ctx ends in the middle, Stress returns the steps until then and the cause;
// when a finished test cannot remove its pods, the result and an error.
func Stress(ctx context.Context, o StressOptions) (*bench.StressResult, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.filled()
	r := &runner{options: o.Options, jobsOnly: true}
	var result *bench.StressResult
	err := r.perform(ctx, func(ctx context.Context) (err error) {
		result, err = r.stress(ctx, o)
		return err
	})
	return result, err
}

func (r *runner) stress(ctx context.Context, o StressOptions) (*bench.StressResult, error) {
	s := r.sides[0]
	result := &bench.StressResult{Schema: bench.StressSchema, Runtime: r.runtime(), Steps: []bench.StressStep{}}
	driveCtx, stop := context.WithCancel(ctx)
	defer stop()
	var driving sync.WaitGroup
	defer driving.Wait()
	defer stop()
	finished := make(chan struct{})
	driving.Go(func() {
		defer close(finished)
		r.drive(driveCtx, math.MaxInt64)
	})

	begun := bench.Now()
	whole := s.span()
	since := func(at int64) bool { return at >= begun }
	first, err := s.process.Tail(ctx)
	if err != nil {
		return nil, err
	}
	for rate := o.StartRate; result.End == ""; {
		at := bench.Now()
		step, err := r.stressStep(r.asked, o, rate)
		if lost, ok := errors.AsType[*cut](err); ok {
			_, _ = r.readReal(r.asked) // until the runtime is back, for the cleanup, or gone
			r.end(lost)
			r.leftEarly(result)
			break
		}
		if err != nil && r.asked.Err() != nil && ctx.Err() == nil {
			r.leftEarly(result)
			break
		}
		if err != nil {
			return nil, err
		}
		step.AtSeconds = time.Duration(at - begun).Seconds()
		result.Steps = append(result.Steps, step)
		if step.Achieved > result.KneeRate {
			result.KneeRate = step.Achieved
			result.KneeP99Seconds = step.Latency.P99
		}
		if s.now().State == pleg.StreamUnsupported {
			result.End = bench.EndNoEvents
			break
		}
		rate, result.End = o.next(result.Steps)
	}
	after := s.span()
	// No more containers; the existing ones run to completion.
	r.driver.SetRate(0)
	r.driver.Finish()
	r.enter("waiting for containers that are under way")
	drained, cancel := r.meter.WithTimeout(ctx, drainFor)
	defer cancel()
	select {
	case <-finished:
	case <-drained.Done():
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		result.GivenUp = r.driver.Stats().UnderWay
		stop()
		<-finished
		if err := r.rest(r.asked); err != nil && r.asked.Err() == nil {
			return nil, err
		}
	}

	consistency, err := r.converge(r.asked)
	if err != nil && r.asked.Err() != nil && ctx.Err() == nil {
		r.leftEarly(result)
		consistency = make([]bench.ConsistencyResult, len(r.sides))
	} else if err != nil {
		return nil, err
	}
	for _, difference := range consistency[0].Differences {
		r.tell("%s", difference)
	}
	if s.final, err = s.process.Report(ctx); err != nil {
		return nil, err
	}
	tail, err := s.process.Tail(ctx)
	if err != nil {
		return nil, err
	}
	v := s.judge(since)
	result.Events = tail.Count - first.Count
	result.Late = tail.Late - first.Late
	result.LateOnWatch = late(v.Path)
	result.StoodSeconds = whole.stood().Seconds()
	if result.IsKnee(after.stood().Seconds()) && r.asked.Err() == nil {
		result.End = bench.EndKnee // the last ones came late after the last step was measured
	}
	result.CheckedPods = consistency[0].CheckedPods
	result.FirstErrors = r.driver.Stats().FirstErrors
	if o.WantTimeline {
		result.Series = []bench.Series{s.events(begun, since)}
	}
	result.Mismatches = consistency[0].Mismatches
	result.Duplicates = v.Duplicates
	result.OutOfOrder = v.OutOfOrder
	result.Missed = s.final.Progress.Missed
	result.Owed = s.final.Progress.Owed
	result.PLEGMaxRSSBytes = s.final.Progress.Usage.MaxRSS
	result.Judge(s.final.Progress.State == pleg.StreamUnsupported)
	return result, nil
}

// mostStood is how many steps are made again because pleg-bench did not run in them.
const mostStood = 3

// next returns the rate of the step after the given ones, or the end. A step with late events, or
// behind its rate, in which pleg-bench did not run for a while proves nothing and is made again. A
// step in which the runtime
// did not keep up is made once more: containers begun in a step end a life and three calls later,
// so that a slow runtime completes less than the rate until as many are under way as that takes.
func (o StressOptions) next(all []bench.StressStep) (rate float64, end string) {
	last := all[len(all)-1]
	steps := slices.DeleteFunc(slices.Clone(all), bench.StressStep.Stood)
	if last.Stood() {
		ill := last.Late+last.LateOnWatch > 0 || last.Achieved < keepsUp*last.Rate
		switch {
		case ill && len(all)-len(steps) > mostStood:
			return 0, bench.EndStood
		case ill:
			return last.Rate, ""
		}
		steps = append(steps, last)
	}
	slow := last.Achieved < keepsUp*last.Rate
	again := len(steps) > 1 && steps[len(steps)-2].Rate == last.Rate
	switch {
	case last.Late+last.LateOnWatch > 0:
		return 0, bench.EndKnee
	case slow && again:
		return 0, bench.EndRuntime
	case slow:
		return last.Rate, ""
	case last.Rate >= o.MaxRate:
		return 0, bench.EndMaxRate
	}
	return min(last.Rate*o.Factor, o.MaxRate), ""
}

// span is a time in which this process, or the generator's, may not have run.
type span struct {
	ours   standstill.Span
	theirs func() time.Duration
	began  time.Duration // of theirs
}

// span begins a span of this process and of the side's.
func (s *side) span() span {
	theirs := func() time.Duration { return s.now().Stood }
	return span{
		ours:   s.meter.Begin(),
		theirs: theirs,
		began:  theirs(),
	}
}

// stood returns for how long a process did not run, by the last news of the other.
func (s span) stood() time.Duration {
	_, ours := s.ours.Took()
	return max(ours, s.theirs()-s.began)
}

// ran returns the rest of the span: without the time in which a process did not run.
func (s span) ran() time.Duration {
	ran, ours := s.ours.Took()
	return ran + ours - s.stood()
}

// rest waits until the runtime shows the same for 5 s, a minute at most: it may still be at work on
// calls that were given up, and starts that fail then are told by no event.
func (r *runner) rest(ctx context.Context) error {
	var last []bench.Pod
	same := 0
	for tries := 0; tries < 60 && same < 5; tries++ {
		now, err := r.read(ctx)
		if err := errors.Join(err, bench.Sleep(ctx, time.Second)); err != nil {
			return err
		}
		same++
		if n, _ := bench.Compare(last, now, 0); n > 0 {
			same = 0
		}
		last = now
	}
	return nil
}

// late counts the delays of more than a second, as the histogram has them above its bucket of a
// second.
func late(delays []time.Duration) (n uint64) {
	for _, d := range delays {
		if d > time.Second {
			n++
		}
	}
	return n
}

// stressStep asks for a rate for the time of a step.
func (r *runner) stressStep(ctx context.Context, o StressOptions, rate float64) (bench.StressStep, error) {
	s := r.sides[0]
	lost := r.link.lost() // who reads of the step may end the runtime at once
	r.enter(fmt.Sprintf("%.0f containers/s%s", rate, r.pace))
	begin := bench.Now()
	span := s.span()
	actions := r.driver.Stats().Actions
	before, beforeErr := s.process.Report(ctx)
	told, toldErr := s.process.Tail(ctx)
	r.driver.SetRate(rate * jobChanges)
	if err := errors.Join(beforeErr, toldErr, bench.Sleep(ctx, o.StepFor)); err != nil {
		return bench.StressStep{}, err
	}
	if !r.link.stands() || r.link.lost() > lost {
		return bench.StressStep{}, &cut{endpoint: r.options.Endpoint, rate: rate}
	}
	end := bench.Now()
	done := r.driver.Stats().Actions - actions
	after, afterErr := s.process.Report(ctx)
	tail, tailErr := s.process.Tail(ctx)
	if err := errors.Join(afterErr, tailErr); err != nil {
		return bench.StressStep{}, err
	}
	v := s.judge(func(at int64) bool { return at >= begin && at <= end })
	achieved := float64(done) / time.Duration(end-begin).Seconds()
	r.pace = fmt.Sprintf(" (before: the runtime completed %.3g a second of %.3g)", achieved, rate)
	return bench.StressStep{
		Rate:        rate,
		Achieved:    achieved,
		UnderWay:    r.driver.Stats().UnderWay,
		Events:      tail.Count - told.Count,
		Late:        tail.Late - told.Late,
		LateOnWatch: late(v.Path),
		Latency:     bench.Summarize(v.Path).Seconds(),
		// Of each process alone: usually both stand, or the one that has no CPU.
		StoodSeconds: max(span.stood(), after.Progress.Stood-before.Progress.Stood).Seconds(),
		PLEGCPU: (after.Progress.Usage.CPUSeconds - before.Progress.Usage.CPUSeconds) / time.Duration(after.Progress.At-before.Progress.At).
			Seconds(),
	}, nil
}
