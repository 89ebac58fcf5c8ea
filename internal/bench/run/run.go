// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package run performs a benchmark run: it starts the processes, drives the load, and judges.
//
// # Model
//
// A run has phases: start, set up the pods, change them for a time, settle, compare, clean up.
// While pods change, the runtime can be restarted. Afterwards faults are lifted, and the cache is
// compared with a full read of the runtime: at once, and after another relist, which must leave no
// difference.
//
// # Concurrency
//
// [Run] returns when everything it started has ended, children included, also when its context ends
// in the middle.
//
// # Errors
//
// Run returns the reason for an unfinished run. A finished run with a bad verdict is not an error:
// see Result.OK.
package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

const (
	factsEvery   = 5 * time.Millisecond
	historyEvery = 250 * time.Millisecond
	statusEvery  = 200 * time.Millisecond
	// catchUpFor is how long the generators may take to see the pods of the setup, and to earn a
	// relist period of trustedPeriods base periods.
	catchUpFor     = 5 * time.Second
	trustedPeriods = 4
	// settleFor is how long the cache may take to equal the runtime after the load without a relist,
	// and convergeFor after a relist.
	settleFor   = 2 * time.Second
	convergeFor = 3 * time.Second
	// graceFor is a little longer than the generator's grace for missed changes.
	graceFor = 2300 * time.Millisecond
	// finishFor is how long actions go on after the user has ended the run.
	finishFor = time.Second
	// goneAfter is for how long a real runtime may refuse every call, as one that restarts does. After
	// that it is gone, and the run ends.
	goneAfter = 15 * time.Second
	// retryEvery is the pause between two reads of a runtime that refuses them.
	retryEvery = 100 * time.Millisecond
	// cleanupFor bounds the removal of the load's pods on a real runtime.
	cleanupFor = 5 * time.Minute
	// fakeReadTimeout and fakeCallTimeout bound calls to a runtime that hangs on purpose.
	fakeReadTimeout = 2 * time.Second
	fakeCallTimeout = 2 * time.Second
)

// runner is the state of a run.
type runner struct {
	options Options
	faults  fakeruntime.Faults
	runID   string
	fake    *fake // nil on a real runtime
	socket  string
	conn    *grpc.ClientConn
	link    *link // nil on the fake runtime
	driver  *load.Driver
	logs    *load.Folder // nil on the fake runtime
	sides   []*side
	fail    context.CancelCauseFunc
	// asked ends when the user ends the run, or the runtime has gone: the body then sums up. End ends
	// it.
	asked context.Context
	end   context.CancelCauseFunc
	// jobsOnly is for a stress test.
	jobsOnly bool
	// meter knows when this process does not run.
	meter standstill.Meter
	pace  string // the outcome of the last step of a stress test, in words

	outage *outage

	// news has the latest state that is to be told whatever the clock says.
	news chan Status

	mu        sync.Mutex // owns the fields below
	facts     []load.Fact
	changes   []bench.Change // on a real runtime, as the load learned of them
	phase     string
	loadBegan time.Time
	// setUp is the number of changes before.
	setUp int
}

// Status is where a run is, for people.
type Status struct {
	// Phase is the present phase of the run.
	Phase string
	// Elapsed of Total is how far the load is, 0 of 0 in other phases.
	Elapsed, Total time.Duration
	// Changes is the number of changes of the load, Behind its delay.
	Changes int
	Behind  time.Duration
}

// Run performs a run. When ctx ends after the begin of the load, Run returns the measurements so
// far and the cause of ctx's end; when a finished run cannot remove its pods, the result and an
// error.
func Run(ctx context.Context, o Options) (*bench.Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &runner{options: o}
	var result *bench.Result
	err := r.perform(ctx, func(ctx context.Context) (err error) {
		result, err = r.measure(ctx)
		return err
	})
	return result, err
}

// perform starts the processes, makes the pods, calls the body, and takes everything down again.
// The body's context ends when the run breaks; r.asked ends then too, and when the caller's context
// ends.
func (r *runner) perform(ctx context.Context, body func(context.Context) error) (err error) {
	whole, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	asked, ask := context.WithCancelCause(whole)
	defer context.AfterFunc(ctx, func() { ask(context.Cause(ctx)) })()
	defer ask(nil)
	r.fail = cancel
	r.asked = asked
	r.end = ask
	r.runID = newRunID()
	defer func() {
		// A run broken from inside returns the reason, not its consequence.
		if cause := context.Cause(whole); err != nil && whole.Err() != nil && !errors.Is(err, cause) {
			err = cause
		}
	}()
	if err := r.openRuntime(asked); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.closeRuntime()) }()
	modes := []string{r.options.Mode}
	if r.options.Compare && r.options.Mode == worker.Evented {
		modes = append(modes, worker.Generic)
	}
	for _, mode := range modes {
		s, err := startSide(asked, r.options, mode, r.socket)
		if err != nil {
			return err
		}
		s.meter = &r.meter
		r.sides = append(r.sides, s)
		defer s.stop()
		go func() { // ends with the process
			<-s.process.Ended()
			if !s.stopping.Load() {
				cancel(fmt.Errorf("the %s PLEG ended in the middle of the run: %w", mode, s.stop()))
			}
		}()
	}

	var background sync.WaitGroup
	defer background.Wait()
	backgroundCtx, stopBackground := context.WithCancel(whole)
	defer stopBackground()
	background.Go(func() { r.meter.Run(backgroundCtx) })
	if r.link != nil {
		background.Go(func() { r.link.watch(backgroundCtx) })
	}
	background.Go(func() { r.every(backgroundCtx, factsEvery, r.sendFacts) })
	background.Go(func() { r.every(backgroundCtx, historyEvery, r.collect) })
	r.news = make(chan Status, 1)
	background.Go(func() { r.progress(backgroundCtx) })

	if r.fake == nil {
		if err := r.survey(asked); err != nil {
			return err
		}
		defer context.AfterFunc(ctx, r.warn)()
		defer func() { err = errors.Join(err, r.cleanup(whole)) }()
	}
	r.enter("making pods")
	if err := r.driver.Setup(asked); err != nil {
		return err
	}
	if err := body(whole); err != nil {
		return err
	}
	return context.Cause(asked)
}

// newRunID returns the ID of a run: the time in milliseconds, so that IDs are in the order of the
// runs, and four random digits, since two runs may begin in the same millisecond.
func newRunID() string {
	const base = 36
	const least = base * base * base // has four digits
	tail := least + rand.Uint64N(base*least-least)
	return strconv.FormatUint(uint64(bench.Now())/1e6, base) + strconv.FormatUint(tail, base)
}

// runUnderWay bounds the unfinished actions of a run, which ends with them: a runtime behind the
// rate makes the run somewhat longer only.
const runUnderWay = 256

// openRuntime starts the fake runtime or connects to a real runtime, and makes the load's driver.
func (r *runner) openRuntime(ctx context.Context) error {
	o := &r.options
	config := load.Config{
		RunID:      r.runID,
		Pods:       o.Pods,
		Containers: o.Containers,
		Rate:       o.Rate,
		Seed:       o.Seed,
		JobLife:    o.JobLife,
		Image:      o.Image,
		Args:       o.Args,
		OnFact:     r.onFact,
		Logger:     o.Logger,
		JobsOnly:   r.jobsOnly,
		Parallel:   o.Parallel,
		Meter:      &r.meter,
	}
	if !r.jobsOnly {
		config.UnderWay = runUnderWay
	}
	if o.Endpoint == "" {
		faults, err := fakeruntime.ParseFaults(o.Faults...)
		if err != nil {
			return err
		}
		r.faults = faults
		config.CallTimeout = fakeCallTimeout
		if r.jobsOnly && config.Parallel == 0 {
			config.Parallel = stressParallel
		}
		if config.Image == "" {
			config.Image = FakeImage
		}
		if o.ReadTimeout == 0 && faults != (fakeruntime.Faults{}) {
			o.ReadTimeout = fakeReadTimeout
		}
		r.enter("starting the fake runtime")
		if r.fake, err = startFake(ctx, *o, r.fail); err != nil {
			return errors.Join(err, r.closeRuntime())
		}
		r.socket = r.fake.socket
		config.LogDirectory = filepath.Dir(r.fake.socket)
	} else {
		var err error
		if r.logs, err = load.MakeLogs(o.LogDirectory, r.runID); err != nil {
			return err
		}
		config.LogDirectory = r.logs.Path
		r.socket = strings.TrimPrefix(o.Endpoint, "unix://")
		config.HostNetwork = true
		if r.jobsOnly {
			config.UnderWay = realUnderWay
		}
		config.OnChange = r.onChange
		config.GoneAfter = goneAfter
		config.Connected = func() bool { return r.link.stands() }
		config.OnGone = r.onGone
	}
	conn, err := load.Connect(r.socket)
	if err != nil {
		return errors.Join(err, r.closeRuntime())
	}
	r.conn = conn
	if r.fake == nil {
		r.link = &link{conn: conn}
	}
	config.Conn = conn
	r.driver = load.New(config)
	return nil
}

func (r *runner) closeRuntime() error {
	var errs []error
	if r.conn != nil {
		errs = append(errs, r.conn.Close())
	}
	if r.fake != nil {
		errs = append(errs, r.fake.stop())
	}
	if r.logs != nil {
		errs = append(errs, r.logs.Remove())
	}
	return errors.Join(errs...)
}

// warn says, once the user ends the run, what a second wish leaves behind.
func (r *runner) warn() {
	r.tell(
		"ending the run, and removing what was made; Ctrl-C again ends at once, and leaves what \"%s\" removes",
		r.removal(),
	)
}

// removal is the command that removes what the run has left.
func (r *runner) removal() string {
	return fmt.Sprintf("pleg-bench cleanup --endpoint %s --run %s", r.options.Endpoint, r.runID)
}

// cleanup removes the load's pods from a real runtime, also when ctx has ended.
func (r *runner) cleanup(ctx context.Context) error {
	r.enter("removing what was made")
	r.announce()
	ctx, cancel := r.meter.WithTimeout(context.WithoutCancel(ctx), cleanupFor)
	defer cancel()
	if err := r.driver.Cleanup(ctx); err != nil {
		err = errors.Join(err, r.logs.Abandon()) // the next run sees that this process has ended
		r.logs = nil
		return fmt.Errorf(
			"pods of run %s (label %s) were left on the runtime; \"%s\" removes them: %w",
			r.runID,
			load.RunLabel,
			r.removal(),
			err,
		)
	}
	return nil
}

// drive changes pods for the duration, or until the user ends the run; begun actions then have a
// moment to finish.
func (r *runner) drive(ctx context.Context, long time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.asked, func() {
		r.driver.Finish()
		time.AfterFunc(finishFor, cancel)
	})()
	r.driver.Run(ctx, long)
}

// every calls f again and again until ctx ends.
func (r *runner) every(ctx context.Context, d time.Duration, f func(context.Context)) {
	for bench.Sleep(ctx, d) == nil {
		f(ctx)
	}
}

func (r *runner) enter(phase string) {
	r.options.Logger.Info("Run goes on", "phase", phase)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
}

func (r *runner) onFact(f load.Fact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = append(r.facts, f)
}

func (r *runner) onChange(c bench.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

func (r *runner) sendFacts(context.Context) {
	r.mu.Lock()
	facts := r.facts
	r.facts = nil
	r.mu.Unlock()
	for _, s := range r.sides {
		if len(facts) > 0 {
			_ = s.process.Tell("Facts", facts) // the end of a worker is noticed elsewhere
		}
	}
}

// collect enters the changes in the runtime since the last call.
func (r *runner) collect(ctx context.Context) {
	enter := func(changes []bench.Change) {
		for _, s := range r.sides {
			s.happened(changes)
		}
	}
	if r.fake == nil {
		r.mu.Lock()
		changes := r.changes
		r.changes = nil
		r.mu.Unlock()
		enter(changes)
		return
	}
	if err := r.fake.collect(ctx, enter); err != nil {
		r.options.Logger.V(1).Info("the history could not be collected", "err", err)
	}
}

// progress tells where the run is, from time to time and when there is news, until ctx ends. Nobody
// else does: a terminal that takes no output holds up no run.
func (r *runner) progress(ctx context.Context) {
	if r.options.OnStatus == nil {
		return
	}
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	for {
		select {
		case status := <-r.news:
			r.options.OnStatus(status)
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return
		case status := <-r.news:
			r.options.OnStatus(status)
		case <-ticker.C:
			r.options.OnStatus(r.status())
		}
	}
}

// announce has the present state told, also if the process then stands still for all of it. News
// that nobody has taken stays.
func (r *runner) announce() {
	select {
	case r.news <- r.status():
	default:
	}
}

// status is where the run is.
func (r *runner) status() Status {
	stats := r.driver.Stats()
	r.mu.Lock()
	defer r.mu.Unlock()
	status := Status{Phase: r.phase, Changes: stats.Changes, Behind: stats.Behind}
	if !r.loadBegan.IsZero() && r.phase == phaseLoad {
		status.Changes -= r.setUp
		status.Elapsed = time.Since(r.loadBegan)
		status.Total = r.options.Duration
	}
	return status
}

// read reads the runtime in full, with a client that shares nothing with the generator's.
func (r *runner) read(ctx context.Context) ([]bench.Pod, error) {
	if r.fake != nil {
		return load.Read(ctx, r.conn, "", "")
	}
	pods, err := r.readReal(ctx)
	others := func(p bench.Pod) bool { return !strings.HasPrefix(p.UID, r.runID+"-") }
	return slices.DeleteFunc(pods, others), err
}

// readReal reads the run's pods on a real runtime. While the runtime refuses to be read, it is
// asked again, until it is gone.
func (r *runner) readReal(ctx context.Context) ([]bench.Pod, error) {
	for span := r.meter.Begin(); ; {
		pods, err := load.Read(ctx, r.conn, load.RunLabel, r.runID)
		if status.Code(err) != codes.Unavailable {
			return pods, err
		}
		ran, _ := span.Took()
		if ran > goneAfter {
			r.onGone(&load.Gone{After: goneAfter, Last: err})
			return nil, context.Cause(r.asked)
		}
		if err := bench.Sleep(ctx, retryEvery); err != nil {
			return nil, err
		}
	}
}
