// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package load makes pods live, die and be replaced on any container runtime, through plain CRI
// calls of the generated client.
//
// # Model
//
// [Driver.Setup] makes a number of pods with long-lived containers. [Driver.Run] then changes them
// at a rate: it replaces a container, runs a short job to its end in a pod, or replaces a whole
// pod, chosen by a seed. Each returned call is a [Fact]: a minimum for every later reader of the
// runtime. [Driver.Cleanup] removes everything with the run's own label, and nothing else.
//
// [Read] is a full and deep read of the runtime for judging a cache, without code of package cri.
//
// # Concurrency
//
// Run starts a bounded number of goroutines and returns when all have ended. They report facts.
//
// # Errors
//
// A call that fails in the middle of an action breaks its pod, which is then replaced; Run counts
// the failure and goes on, because runtimes under test fail calls on purpose. Only conditions that
// prevent a load (no image, no runtime, no pod at setup) are returned. A runtime that refuses every
// call for Config.GoneAfter is [Gone]: that ends the load.
package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Driver drives a load, see [New].
type Driver struct {
	config Config
	client runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	slots  chan struct{} // a value for each call in flight
	away   absence

	counting sync.Mutex // owns stats
	stats    Stats

	mu   sync.Mutex // owns rand, rate, and the fields named at pod
	rand *rand.Rand
	rate float64
	pods []*pod
	// finish is closed by Finish.
	finish     chan struct{}
	finishOnce sync.Once
}

// New returns a driver without making a call.
func New(config Config) *Driver {
	config = config.withDefaults()
	d := &Driver{
		config: config,
		client: runtimeapi.NewRuntimeServiceClient(config.Conn),
		images: runtimeapi.NewImageServiceClient(config.Conn),
		slots:  make(chan struct{}, config.Parallel),
		rand:   rand.New(rand.NewPCG(config.Seed, 0x9e3779b97f4a7c15)),
		rate:   config.Rate,
		finish: make(chan struct{}),
	}
	for i := range config.Pods {
		d.pods = append(d.pods, &pod{index: i, broken: true})
	}
	return d
}

// Stats returns the progress so far.
func (d *Driver) Stats() Stats {
	d.counting.Lock()
	defer d.counting.Unlock()
	s := d.stats
	s.Errors = maps.Clone(s.Errors)
	s.FirstErrors = maps.Clone(s.FirstErrors)
	s.Calls = s.Calls[:len(s.Calls):len(s.Calls)]
	return s
}

// count changes the stats.
func (d *Driver) count(f func(*Stats)) {
	d.counting.Lock()
	defer d.counting.Unlock()
	f(&d.stats)
}

// SetRate changes the rate from now on.
func (d *Driver) SetRate(rate float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rate = rate
}

// Setup makes the pods. It fails if the runtime does not have the image, or if a pod cannot be made
// after a few tries.
func (d *Driver) Setup(ctx context.Context) error {
	var answer *runtimeapi.ImageStatusResponse
	err := try(ctx, func() (err error) {
		answer, err = d.images.ImageStatus(
			ctx,
			&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: d.config.Image}},
		)
		return err
	})
	if err != nil {
		return fmt.Errorf("load: ask the runtime for the image %s: %w", d.config.Image, err)
	}
	if answer.GetImage() == nil {
		return fmt.Errorf(
			"load: the runtime does not have the image %q: pull it first (crictl pull), or name one that it has with --image%s; "+
				"it must understand the arguments %q",
			d.config.Image,
			Images(ctx, d.config.Conn),
			d.config.Args,
		)
	}
	return d.Refill(ctx)
}

// Refill replaces every broken pod. It fails if one cannot be made after a few tries.
func (d *Driver) Refill(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(d.config.Parallel)
	for _, p := range d.claimBroken(false) {
		tasks.Go(func() error {
			err := try(ctx, func() error { return d.do(ctx, repair, p, 0, 0) })
			d.release(p, repair, err)
			return err
		})
	}
	return tasks.Wait()
}

// try calls f until it succeeds, a few times: a runtime may be made to fail now and then.
func try(ctx context.Context, f func() error) (err error) {
	for range 10 {
		if err = f(); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, gone := errors.AsType[*Gone](err); gone {
			return err
		}
	}
	return err
}

// Images returns the first few images of the runtime in brackets, or nothing without an answer.
func Images(ctx context.Context, conn grpc.ClientConnInterface) string {
	const most = 5
	answer, err := runtimeapi.NewImageServiceClient(conn).ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return ""
	}
	var names []string
	for _, image := range answer.GetImages() {
		if tags := image.GetRepoTags(); len(tags) > 0 && len(names) < most {
			names = append(names, printable.Text(tags[0]))
		}
	}
	if len(names) == 0 {
		return " (it has none)"
	}
	slices.Sort(names)
	return " (it has " + strings.Join(names, ", ") + ")"
}

// Finish lets Run begin nothing more.
func (d *Driver) Finish() { d.finishOnce.Do(func() { close(d.finish) }) }

func (d *Driver) finished() bool {
	select {
	case <-d.finish:
		return true
	default:
		return false
	}
}

// Run changes pods at the rate for the duration or until [Driver.Finish], finishes the begun
// actions, and returns. When ctx ends it abandons them.
func (d *Driver) Run(ctx context.Context, long time.Duration) {
	var group sync.WaitGroup
	defer group.Wait()
	underWay := make(chan struct{}, d.config.UnderWay)
	start := func(a action, p *pod, slot int, life time.Duration) {
		select {
		case underWay <- struct{}{}:
		case <-ctx.Done():
			d.release(p, a, context.Cause(ctx))
			return
		case <-d.finish:
			d.mu.Lock()
			defer d.mu.Unlock()
			d.leave(p, a)
			return
		}
		d.count(func(s *Stats) { s.UnderWay++ })
		group.Go(func() {
			defer func() {
				d.count(func(s *Stats) { s.UnderWay-- })
				<-underWay
			}()
			err := d.do(ctx, a, p, slot, life)
			d.release(p, a, err)
		})
	}
	begun := time.Now()
	next := begun
	var looked time.Time
	for ctx.Err() == nil && !d.finished() && time.Since(begun) < long {
		for _, p := range d.claimBroken(true) {
			start(repair, p, 0, 0)
		}
		d.mu.Lock()
		rate := d.rate
		d.mu.Unlock()
		if rate <= 0 {
			next = time.Now()
			if !d.config.Connected() && time.Since(looked) > lookEvery {
				d.look(ctx)
				looked = time.Now()
			}
			_ = bench.Sleep(ctx, 20*time.Millisecond)
			continue
		}
		late := time.Since(next)
		d.count(func(s *Stats) { s.Behind = max(late, 0) })
		if late < 0 {
			_ = bench.Sleep(ctx, min(-late, 20*time.Millisecond))
			continue
		}
		a, p, slot, life := d.claim()
		if p == nil { // every pod is broken or taken
			_ = bench.Sleep(ctx, time.Millisecond)
			continue
		}
		start(a, p, slot, life)
		next = next.Add(time.Duration(float64(d.changes(a)) / rate * float64(time.Second)))
		if late > time.Second { // hopelessly behind: do not try to catch up in a burst
			next = time.Now()
		}
	}
}

// lookEvery is the pause between two looks for a runtime to which no connection stands, and the
// bound of each.
const lookEvery = 500 * time.Millisecond

// look asks whether the runtime is there, which connects again: a load that changes nothing makes
// no other call.
func (d *Driver) look(ctx context.Context) {
	_ = d.ask(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lookEvery)
		defer cancel()
		_, err := d.client.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
}

// claim draws an action and takes a pod for the action; nil if no pod is available. An action for a
// whole pod becomes a job if no whole pod is free.
func (d *Driver) claim() (a action, p *pod, slot int, life time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a = d.draw()
	life = d.config.JobLife/2 + time.Duration(d.rand.Int64N(int64(d.config.JobLife)+1))
	if d.config.Containers > 0 {
		slot = d.rand.IntN(d.config.Containers)
	}
	first := d.rand.IntN(len(d.pods))
	if a != runJob {
		for i := range d.pods {
			p := d.pods[(first+i)%len(d.pods)]
			if !p.busy && !p.broken && p.jobs == 0 {
				p.busy = true
				return a, p, slot, life
			}
		}
	}
	for i := range d.pods {
		p := d.pods[(first+i)%len(d.pods)]
		if !p.busy && !p.broken {
			p.jobs++
			return runJob, p, slot, life
		}
	}
	return 0, nil, 0, 0
}

// claimBroken takes every idle broken pod, or only those whose repair is due.
func (d *Driver) claimBroken(due bool) []*pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	var broken []*pod
	now := time.Now()
	for _, p := range d.pods {
		waits := due && now.Before(p.retry)
		if p.broken && !p.busy && p.jobs == 0 && !waits {
			p.busy = true
			broken = append(broken, p)
		}
	}
	return broken
}

// release gives a pod back after an action.
func (d *Driver) release(p *pod, a action, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leave(p, a)
	p.broken = err != nil || p.broken && a == runJob
	switch {
	case err == nil:
		p.failures = 0
	case a == repair:
		const first, most = 50 * time.Millisecond, time.Second
		p.retry = time.Now().Add(min(first<<min(p.failures, 10), most))
		p.failures++
	}
	d.count(func(s *Stats) {
		if err != nil {
			s.Broken++
		} else {
			s.Actions++
		}
	})
}

// leave returns the pod of an action. The caller holds the mutex.
func (d *Driver) leave(p *pod, a action) {
	if a == runJob {
		p.jobs--
	} else {
		p.busy = false
	}
}

// Cleanup removes every pod with the run's label. It goes on after errors and returns them joined.
func (d *Driver) Cleanup(ctx context.Context) error {
	return RemoveRun(ctx, d.config.Conn, d.config.RunID, d.config.Meter)
}

// action is a step of a load with a pod.
type action uint8

const (
	// replaceContainer stops, removes, creates and starts the container of a slot: 4 changes.
	replaceContainer action = iota
	// runJob creates and starts a short container, waits for its natural end, and removes the
	// container: 4 changes.
	runJob
	// replacePod stops and removes a pod and makes another pod in its place.
	replacePod
	// repair replaces a broken pod, and does not count towards the rate.
	repair
)

// changes is how many state changes an action makes.
func (d *Driver) changes(a action) int {
	switch a {
	case replaceContainer, runJob:
		return 4
	case replacePod:
		return 3 + 4*d.config.Containers
	}
	return 0
}

// draw chooses an action. The caller holds the mutex.
func (d *Driver) draw() action {
	if d.config.JobsOnly {
		return runJob
	}
	switch n := d.rand.IntN(100); {
	case n < 45 && d.config.Containers > 0:
		return replaceContainer
	case n < 85:
		return runJob
	}
	return replacePod
}

// do performs an action on a pod claimed for the action.
func (d *Driver) do(ctx context.Context, a action, p *pod, slot int, life time.Duration) error {
	switch a {
	case replaceContainer:
		return d.replaceSlot(ctx, p, slot)
	case runJob:
		return d.job(ctx, p, life)
	}
	if err := d.removePod(ctx, p); err != nil {
		return err
	}
	return d.makePod(ctx, p)
}

func (d *Driver) replaceSlot(ctx context.Context, p *pod, slot int) error {
	if id := p.slots[slot]; id != "" {
		if _, err := invoke(ctx, d, p, "StopContainer", d.client.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			return err
		}
		d.fact(ctx, p, id, false, pleg.PhaseExited)
		if err := d.removeContainer(ctx, p, id); err != nil {
			return err
		}
		p.slots[slot] = ""
	}
	return d.fillSlot(ctx, p, slot)
}

// job runs a container to its natural end.
func (d *Driver) job(ctx context.Context, p *pod, life time.Duration) error {
	attempt := d.nextAttempt(p)
	id, err := d.startContainer(ctx, p, fmt.Sprintf("job-%d", attempt), 0, life, func(string) {})
	if err != nil {
		return err
	}
	if err := bench.Sleep(ctx, life); err != nil {
		return err
	}
	if err := d.awaitExit(ctx, id); err != nil {
		return fmt.Errorf("load: job %s of pod %s: %w", id, p.uid, err)
	}
	d.fact(ctx, p, id, false, pleg.PhaseExited)
	return d.removeContainer(ctx, p, id)
}

// awaitExit asks with growing pauses until a container has ended.
func (d *Driver) awaitExit(ctx context.Context, id string) error {
	pause := 2 * time.Millisecond
	for span := d.config.Meter.Begin(); ; {
		var state runtimeapi.ContainerState
		err := d.ask(ctx, func(ctx context.Context) error {
			answer, err := d.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			state = answer.GetStatus().GetState()
			return err
		})
		if err == nil && state == runtimeapi.ContainerState_CONTAINER_EXITED {
			return nil
		}
		if _, none := errors.AsType[*Gone](err); none || gone(err) || ctx.Err() != nil {
			return err
		}
		if over(span, d.config.CallTimeout) {
			return fmt.Errorf("it has not ended after %v: %w", d.config.CallTimeout, err)
		}
		if err := bench.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// retryUnavailable is the pause between tries of a call to an unready runtime.
const retryUnavailable = 50 * time.Millisecond

// Call is a finished call of the load.
type Call struct {
	// At is a bench.Stamp of the begin.
	At   int64
	Took time.Duration
}

// Stats is the progress of a load.
type Stats struct {
	// Changes counts the intended state changes, Actions the completed actions, Broken the abandoned
	// actions.
	Changes, Actions, Broken int
	// UnderWay is the number of unfinished actions.
	UnderWay int
	// Errors counts failed calls by method, FirstErrors has the first error of each.
	Errors      map[string]int
	FirstErrors map[string]string
	// Calls are the successful changing calls, in the order of their ends.
	Calls []Call
	// Behind is how late the load is against its rate.
	Behind time.Duration
}

// invoke makes a changing call for a pod, and repeats the call while the runtime is not ready.
func invoke[Q, A any](
	ctx context.Context,
	d *Driver,
	p *pod,
	method string,
	call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q,
) (answer A, err error) {
	for span := d.config.Meter.Begin(); ; {
		start := time.Now()
		err = d.ask(ctx, func(ctx context.Context) error {
			start = time.Now()
			answer, err = call(ctx, request)
			return err
		})
		if err == nil {
			d.count(
				func(s *Stats) { s.Calls = append(s.Calls, Call{At: bench.Stamp(start), Took: time.Since(start)}) },
			)
			return answer, nil
		}
		says := printable.Text(status.Convert(err).Message())
		_, gone := errors.AsType[*Gone](err)
		if err = fmt.Errorf("load: %s of pod %s: %w", method, p.uid, err); ctx.Err() != nil {
			return answer, err
		}
		d.count(func(s *Stats) {
			if s.Errors == nil {
				s.Errors = make(map[string]int)
				s.FirstErrors = make(map[string]string)
			}
			s.Errors[method]++
			if s.Errors[method] == 1 {
				s.FirstErrors[method] = says
			}
		})
		if gone || status.Code(err) != codes.Unavailable || over(span, d.config.CallTimeout) ||
			bench.Sleep(ctx, retryUnavailable) != nil {
			d.config.Logger.V(1).Info("call failed", "method", method, "err", err)
			return answer, err
		}
	}
}

// gone reports whether a call failed because its object is not there any more.
func gone(err error) bool { return status.Code(err) == codes.NotFound }

// ask makes a call once there is room for it.
func (d *Driver) ask(ctx context.Context, f func(context.Context) error) error {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The runtime knows no deadline: this process may stand still.
	ctx, cancel := d.config.Meter.WithTimeout(ctx, d.config.CallTimeout)
	defer cancel()
	err := f(ctx)
	if status.Code(err) == codes.Canceled && standstill.Expired(ctx) {
		return status.Errorf(codes.DeadlineExceeded, "no answer within %v", d.config.CallTimeout)
	}
	gone, news := d.away.note(err, d.config.GoneAfter, d.config.Meter)
	if news {
		d.Finish()
		d.config.OnGone(gone)
	}
	if gone != nil && err != nil {
		return gone
	}
	return err
}

// over reports whether this process has run for longer than a time since the begin of a span.
func over(span standstill.Span, long time.Duration) bool {
	ran, _ := span.Took()
	return ran > long
}
